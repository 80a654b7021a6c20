// Small programs that do in a sandbox what the protocol has no word for.
#pragma once

#include <string_view>

namespace asr::e2b {

// Becomes the program in $5 and following. $1: what to say when it cannot be started; $2, $3:
// seconds of processor time, softly and for good; empty: no limit. $4: where.
inline constexpr std::string_view kLaunch = R"sh(
if [ -n "$3" ]; then ulimit -H -t "$3" 2>/dev/null; ulimit -S -t "$2" 2>/dev/null; fi
n=$1
cd -- "$4" 2>/dev/null || { echo "$n" >&2; exit 127; }
shift 4
command -v -- "$1" >/dev/null 2>&1 || { echo "$n" >&2; exit 127; }
exec "$@"
)sh";

// Sends signal $1 to process $2 and all that descend from it. Those that are to be killed stand
// still first, until there are no new ones: a child that is born between looking and killing would
// be nobody's.
inline constexpr std::string_view kSignalTree = R"sh(
family=" $2 "
look() {
  all=
  for f in /proc/[0-9]*/status; do
    p=; q=
    { while read -r k v rest; do
        case $k in Pid:) p=$v;; PPid:) q=$v; break;; esac
      done < "$f"; } 2>/dev/null
    [ -n "$p" ] && [ "$p" != "$$" ] && all="$all $p:$q"
  done
  more=1
  while [ -n "$more" ]; do
    more=
    for e in $all; do
      case $family in *" ${e%%:*} "*) continue;; esac
      case $family in *" ${e##*:} "*) family="$family${e%%:*} "; more=1;; esac
    done
  done
}
if [ "$1" = 9 ]; then
  before= n=0
  while [ "$family" != "$before" ] && [ $n -lt 50 ]; do
    before=$family n=$((n + 1))
    for p in $family; do kill -s STOP "$p" 2>/dev/null; done
    look
  done
else
  look
fi
for p in $family; do kill -s "$1" "$p" 2>/dev/null; done
exit 0
)sh";

// One process in three lines: its stat, its user, its words in base64.
inline constexpr std::string_view kProcesses = R"sh(
for d in /proc/[0-9]*; do
  p=${d#/proc/}
  [ "$p" = "$$" ] && continue
  s=$(cat "$d/stat" 2>/dev/null) || continue
  u=
  { while read -r k v rest; do [ "$k" = Uid: ] && { u=$v; break; }; done < "$d/status"; } 2>/dev/null
  c=$(base64 -w0 < "$d/cmdline" 2>/dev/null)
  printf '%s\n%s\n%s\n' "$s" "$u" "$c"
done
)sh";

// A program whose stdin is a socket, where there are none: all it writes comes on our stdout, a
// line for each piece, with a letter for where it came from. A line is whole or is not there, so
// that whoever begins to listen later finds the next one.
inline constexpr std::string_view kBothWays = R"py(
import base64, os, select, signal, socket, sys
for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE):
    signal.signal(s, signal.SIG_IGN)
def tell(kind, data=b""):
    line = kind + (base64.b64encode(data) if isinstance(data, bytes) else str(data).encode()) + b"\n"
    while line:
        line = line[os.write(1, line):]
ours, theirs = socket.socketpair()
out, out_end = os.pipe()
err, err_end = os.pipe()
started, started_end = os.pipe()
bell, bell_end = os.pipe()
os.set_blocking(bell_end, False)
signal.set_wakeup_fd(bell_end)
signal.signal(signal.SIGCHLD, lambda *_: None)
child = os.fork()
if child == 0:
    try:
        for s in range(1, 32):
            if s not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(s, signal.SIG_DFL)
        os.setsid()
        os.dup2(theirs.fileno(), 0)
        os.dup2(out_end, 1)
        os.dup2(err_end, 2)
        os.execvp(sys.argv[1], sys.argv[1:])
    except OSError as problem:
        os.write(started_end, str(problem.errno).encode())
    os._exit(127)
for fd in (out_end, err_end, started_end):
    os.close(fd)
theirs.close()
problem = os.read(started, 100)
if problem:
    tell(b"s", problem.decode())
    sys.exit(0)
ours.setblocking(False)
kinds = {ours.fileno(), out, err}
for fd in (out, err):
    os.set_blocking(fd, False)
def take(fd, room=65536):
    try:
        data = os.read(fd, room)
    except BlockingIOError:
        return None
    except OSError:
        data = b""
    if not data:
        kinds.discard(fd)
    return data
waiting, listening, status, ended = b"", True, None, 0
while True:
    read = [*kinds, bell] + ([0] if listening and len(waiting) < 1 << 20 else [])
    ready, writable, _ = select.select(read, [ours] if waiting else [], [], 0 if ended else 5)
    if bell in ready:
        os.read(bell, 1000)
    if 0 in ready:
        data = os.read(0, 65536)
        waiting += data
        listening = bool(data)
    # What was written before an answer comes before it.
    reply = take(ours.fileno()) if ours.fileno() in ready else None
    moved = bool(reply)
    for fd in (out, err):
        while fd in kinds and (data := take(fd)):
            moved = True
            tell(b"o" if fd == out else b"e", data)
            if not reply:
                break
    if reply:
        tell(b"r", reply)
    if writable:
        try:
            waiting = waiting[ours.send(waiting):]
        except BlockingIOError:
            pass
        except OSError:
            waiting, listening = b"", False
    if not listening and not waiting and ours.fileno() in kinds:
        try:
            ours.shutdown(socket.SHUT_WR)
        except OSError:
            pass
    # Whoever it left behind may write for ever.
    if ended and (not moved or ended > 64):
        break
    ended += 1 if ended else 0
    if status is None:
        done, how = os.waitpid(child, os.WNOHANG)
        if done:
            status, ended = how, 1
tell(b"x", -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
)py";

}  // namespace asr::e2b
