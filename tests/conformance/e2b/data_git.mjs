// Git through the SDK's helper, against a daemon inside and a server that wants a password.
import { same, fails, has, holds, until } from './cases.mjs';

// Answers everything with 401, as a private repository does to strangers.
const stranger = `
import http.server
class Private(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(401)
        self.send_header('WWW-Authenticate', 'Basic realm="private"')
        self.send_header('Content-Length', '0')
        self.end_headers()
http.server.HTTPServer(('127.0.0.1', 9419), Private).serve_forever()
`;

export default function ({ e2b, box, testIf }) {
  const { CommandExitError, GitAuthError, GitUpstreamError, InvalidArgumentError } = e2b;
  const git = (name, body) => testIf(box.git, 'git helper', name, body);
  const repository = '/home/user/r';

  git('git: cloned, committed and pushed to a daemon inside', async () => {
    await box.commands.run(`set -e; rm -rf /tmp/git && mkdir -p /tmp/git && git init -q --bare -b main /tmp/git/r.git &&
      git daemon --reuseaddr --base-path=/tmp/git --export-all --enable=receive-pack --detach --listen=127.0.0.1 --port=9418`);
    await box.git.clone('git://127.0.0.1/r.git', { path: repository });
    await box.files.write('r/f.txt', 'tracked');
    await box.git.configureUser('Me', 'me@example.org', { scope: 'global' });
    same((await box.git.status(repository)).isClean, false);
    await box.git.add(repository);
    await box.git.commit(repository, 'first');
    same((await box.git.status(repository)).isClean, true);
    await box.git.push(repository, { remote: 'origin', branch: 'main' });
    same((await box.commands.run('git -C /tmp/git/r.git log --format="%s by %an" main')).stdout, 'first by Me\n');
  });
  git('git: pulled', async () => {
    await box.git.clone('git://127.0.0.1/r.git', { path: '/home/user/other', branch: 'main', depth: 1 });
    await box.files.write('other/g.txt', 'of the other');
    await box.git.add('/home/user/other', { files: ['g.txt'] });
    await box.git.commit('/home/user/other', 'second', { authorName: 'You', authorEmail: 'you@example.org' });
    await box.git.push('/home/user/other', { remote: 'origin', branch: 'main', setUpstream: true });
    await box.git.pull(repository, { remote: 'origin', branch: 'main' });
    same(await box.files.read('r/g.txt'), 'of the other');
    same((await box.commands.run('git log -1 --format=%an', { cwd: repository })).stdout, 'You\n');
  });
  git('git: branches', async () => {
    await box.git.createBranch(repository, 'side');
    same((await box.git.branches(repository)).currentBranch, 'side');
    await box.git.checkoutBranch(repository, 'main');
    same([...(await box.git.branches(repository)).branches].sort(), ['main', 'side']);
    await box.git.deleteBranch(repository, 'side', { force: true });
    same((await box.git.branches(repository)).branches, ['main']);
    await fails(box.git.checkoutBranch(repository, 'nowhere'), CommandExitError);
  });
  git('git: taken back', async () => {
    await box.files.write('r/f.txt', 'changed');
    await box.git.add(repository);
    same((await box.git.status(repository)).hasStaged, true);
    await box.git.reset(repository, { mode: 'mixed', target: 'HEAD' });
    same((await box.git.status(repository)).hasStaged, false);
    await box.git.restore(repository, { paths: ['f.txt'] });
    same(await box.files.read('r/f.txt'), 'tracked');
  });
  git('git: made, with remotes and settings', async () => {
    await box.git.init('/home/user/made', { initialBranch: 'trunk' });
    same((await box.git.branches('/home/user/made')).currentBranch ?? 'trunk', 'trunk');
    await box.git.remoteAdd('/home/user/made', 'origin', 'git://127.0.0.1/r.git');
    same(await box.git.remoteGet('/home/user/made', 'origin'), 'git://127.0.0.1/r.git');
    same(await box.git.remoteGet('/home/user/made', 'nobody'), undefined);
    await box.git.setConfig('some.thing', 'here', { scope: 'local', path: '/home/user/made' });
    same(await box.git.getConfig('some.thing', { scope: 'local', path: '/home/user/made' }), 'here');
    same(await box.git.getConfig('no.thing'), undefined);
  });
  git('git: no upstream is GitUpstreamError', async () => {
    await box.git.createBranch(repository, 'alone');
    await fails(box.git.push(repository, { setUpstream: false }), GitUpstreamError);
    await fails(box.git.pull(repository), GitUpstreamError);
  });
  git('git: a password that is missing is GitAuthError', async () => {
    await box.files.write('/tmp/stranger.py', stranger);
    const server = await box.commands.run('python3 /tmp/stranger.py', { background: true, timeoutMs: 0 });
    await until(async () => (await box.commands.run('curl -s -o /dev/null -w %{http_code} http://127.0.0.1:9419/ || true')).stdout === '401', 'the server');
    has((await fails(box.git.clone('http://127.0.0.1:9419/private.git', { path: '/home/user/never' }), GitAuthError)).message, 'credentials');
    await fails(box.git.clone('http://127.0.0.1:9419/private.git', { path: '/home/user/never', username: 'me', password: 'wrong' }), GitAuthError);
    await fails(box.git.clone('http://127.0.0.1:9419/private.git', { path: '/home/user/never', password: 'alone' }), InvalidArgumentError);
    const gone = await fails(box.git.clone('git://127.0.0.1:9420/nothing.git', { path: '/home/user/never' }), CommandExitError);
    holds(gone.stderr.length > 0, 'git says why');
    await box.git.dangerouslyAuthenticate({ username: 'me', password: 'kept', host: '127.0.0.1:9419', protocol: 'http' });
    has(await box.files.read('.git-credentials'), 'http://me:kept@127.0.0.1');
    await server.kill();
  });
}
