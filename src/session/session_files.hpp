// Where a session's files lie below the server's storage.
#pragma once

#include <string>

namespace asr {

inline const std::string kSessionFolders = "sessions";

inline const std::string kArtifactFolders = "artifacts";
inline const std::string kJournalFile = "commands";

inline std::string disk_of(const std::string& id) { return kSessionFolders + "/" + id + "/disk"; }

}  // namespace asr
