// Templates: built, tagged, used and removed.
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import { assert, check, checkIf } from './check.mjs'

export default async function ({ e2b, ask, sleep }) {
  const { Sandbox, Template } = e2b
  async function settled(template, build) {
    for (let i = 0; i < 300; ++i) {
      const now = await ask('GET', `/templates/${template}/builds/${build}/status?logsOffset=0`)
      if (now.json.status === 'ready' || now.json.status === 'error') return now.json
      await sleep(100)
    }
    throw new Error('the build does not end')
  }
  await check('a template by the wire', async () => {
    const made = await ask('POST', '/v3/templates', { name: 'wired:v1', cpuCount: 1, memoryMB: 512 })
    assert.equal(made.status, 202, made.text)
    const { templateID, buildID } = made.json
    const started = await ask('POST', `/v2/templates/${templateID}/builds/${buildID}`, {
      fromTemplate: 'base', steps: [
        { type: 'ENV', args: ['COLOR', 'blue'] }, { type: 'WORKDIR', args: ['/app'] },
        { type: 'RUN', args: ['echo built as $COLOR in $PWD > /app/made'] }], startCmd: 'sleep 600', readyCmd: 'test -f /app/made' })
    assert.equal(started.status, 202, started.text)
    assert.equal(started.headers.get('content-length'), '0')
    const done = await settled(templateID, buildID)
    assert.equal(done.status, 'ready', JSON.stringify(done))
    assert.ok(done.logEntries.length > 3)
    assert.equal((await ask('GET', '/templates/aliases/wired')).json.templateID, templateID)
    assert.equal((await ask('GET', '/templates/aliases/nobody')).json.code, 404)
    assert.equal((await ask('POST', '/templates/tags', { target: 'wired:v1', tags: ['default', 'stable'] })).json.buildID, buildID)
    assert.deepEqual((await ask('GET', `/templates/${templateID}/tags`)).json.map((each) => each.tag).sort(), ['default', 'stable', 'v1'])
    assert.equal((await ask('DELETE', '/templates/tags', { name: 'wired', tags: ['stable'] })).status, 204)
    const box = await ask('POST', '/v2/sandboxes', { templateID: 'wired' })
    assert.equal(box.status, 201, box.text)
    assert.equal((await ask('GET', '/sandboxes/' + box.json.sandboxID)).json.memoryMB, 512)
    await ask('DELETE', '/sandboxes/' + box.json.sandboxID)
    assert.ok((await ask('GET', '/templates')).json.some((each) => each.templateID === templateID))
    assert.equal((await ask('GET', '/templates/' + templateID)).json.builds.length, 1)
    assert.equal((await ask('PATCH', '/v2/templates/' + templateID, { public: true })).status, 200)
    assert.equal((await ask('DELETE', '/templates/' + templateID)).status, 204)
    assert.equal((await ask('POST', '/v2/sandboxes', { templateID: 'wired' })).json.code, 404)
  })
  await check('a build that fails says why', async () => {
    for (const [body, why] of [[{ fromImage: 'nobody/has-this:1' }, /image/], [{ fromTemplate: 'base', steps: [{ type: 'RUN', args: ['exit 3'] }] }, /exit code 3/]]) {
      const { templateID, buildID } = (await ask('POST', '/v3/templates', { name: 'broken' })).json
      assert.equal((await ask('POST', `/v2/templates/${templateID}/builds/${buildID}`, body)).status, 202)
      const done = await settled(templateID, buildID)
      assert.equal(done.status, 'error')
      assert.match(done.reason.message, why)
    }
  })
  // The name came after 2.7 as an argument of its own.
  const named = (name, options) => (Template.assignTags ? [name, options] : [{ alias: name, ...options }])
  await check('a template by the SDK', async () => {
    fs.mkdirSync('context/below', { recursive: true })
    fs.writeFileSync('context/hello.txt', 'hello from outside')
    fs.writeFileSync('context/below/more.txt', 'and from below')
    const recipe = Template({ fileContextPath: 'context' }).fromTemplate('base').setEnvs({ COLOR: 'green' }).copy('hello.txt', '/app/hello.txt')
      .copy('below', '/app/below').setWorkdir('/app').runCmd('cat hello.txt below/more.txt && echo $COLOR > /home/user/color')
      .setStartCmd('sleep 601', 'test -f /home/user/color')
    const lines = []
    await Template.build(recipe, ...named('by-sdk', { cpuCount: 1, memoryMB: 512, onBuildLogs: (line) => lines.push(line.message) }))
    assert.ok(lines.some((line) => line.includes('hello from outside')), lines.join('\n'))
    const box = await Sandbox.create('by-sdk')
    assert.equal((await box.getInfo()).state, 'running')
    assert.equal((await box.commands.run('cat ~/color /app/hello.txt /app/below/more.txt; pgrep -cf "^sleep 601"')).stdout, 'green\nhello from outsideand from below1\n')
    assert.ok((await box.commands.list()).some((each) => each.tag === 'startCmd'))
    await box.kill()
  })
  await check('a build by the SDK that fails is BuildError', async () => {
    await assert.rejects(Template.build(Template().fromTemplate('base').runCmd('echo no >&2; exit 3'), ...named('failing', {})), (error) => {
      assert.ok(error instanceof e2b.BuildError, `${error.constructor.name}: ${error.message}`)
      assert.match(error.message, /exit code 3/)
      return true
    })
    await assert.rejects(Template.build(Template().fromImage('nobody/has-this:1'), ...named('failing', {})), e2b.BuildError)
    await assert.rejects(Template.build(Template().fromTemplate('base'), ...named('not a name!', {})), e2b.BuildError)
  })
  await check('files that are not taken are FileUploadError', async () => {
    fs.writeFileSync('context/unseen.txt', `${Date.now()}`)
    // The template is removed between its request and its files; the SDK does not wait for whoever listens, so this must.
    const remove = ({ message }) => {
      const id = /created with ID: ([^,\s]+)/.exec(message)?.[1]
      if (id) execFileSync('curl', ['-fsS', '-X', 'DELETE', '-H', `X-API-Key: ${process.env.E2B_API_KEY}`, `${process.env.E2B_API_URL}/templates/${id}`])
    }
    const recipe = Template({ fileContextPath: 'context' }).fromTemplate('base').copy('unseen.txt', '/unseen.txt')
    await assert.rejects(Template.build(recipe, ...named('removed', { onBuildLogs: remove })), e2b.FileUploadError)
  })
  await check('a build in the background', async () => {
    const build = await Template.buildInBackground(Template().fromTemplate('base').runCmd('sleep 1; echo slept'), ...named('background', {}))
    let status
    const lines = []
    for (let i = 0; i < 300 && status !== 'ready'; ++i) {
      const now = await Template.getBuildStatus(build, { logsOffset: lines.length })
      status = now.status
      lines.push(...now.logEntries.map((each) => each.message))
      assert.notEqual(status, 'error', lines.join('\n'))
      await sleep(100)
    }
    assert.equal(status, 'ready')
    assert.ok(lines.some((line) => line.includes('slept')), lines.join('\n'))
    await assert.rejects(Template.getBuildStatus({ templateId: 'nobodys', buildId: 'nothing' }), e2b.BuildError)
  })
  await checkIf(Template.assignTags, 'assignTags', 'tags by the SDK', async () => {
    assert.equal(await Template.exists('by-sdk'), true)
    assert.equal(await Template.exists('nobodys'), false)
    const { tags } = await Template.assignTags('by-sdk', ['v1', 'stable'])
    assert.ok(tags.includes('v1') && tags.includes('stable'), `${tags}`)
    assert.ok((await Template.getTags('by-sdk')).every((each) => each.createdAt instanceof Date))
    const box = await Sandbox.create('by-sdk:stable')
    await box.kill()
    await Template.removeTags('by-sdk', 'stable')
    assert.deepEqual((await Template.getTags('by-sdk')).map((each) => each.tag).sort(), ['default', 'v1'])
    await assert.rejects(Sandbox.create('by-sdk:stable'), e2b.SandboxError)
    await assert.rejects(Template.assignTags('nobodys', 'v1'), e2b.TemplateError)
    await assert.rejects(Template.removeTags('nobodys', 'v1'), e2b.TemplateError)
    await assert.rejects(Template.getTags('nobodys'), e2b.TemplateError)
  })
}
