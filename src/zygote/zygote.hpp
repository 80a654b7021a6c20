// The process sandboxes are forked from. It answers one daemon on one socket, makes a sandbox per
// request with a single clone3(), reports those that end, and ends when the daemon does. It runs
// nothing that came from a sandbox, and parses nothing but the daemon's messages.
#pragma once

namespace asr {

// Serves until the socket is closed. In the child of a launch it never returns: it becomes the
// guest.
int run_zygote(int control_socket);

}  // namespace asr
