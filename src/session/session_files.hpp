// Where a session's files lie below the server's storage.
#pragma once

#include <string>
#include <string_view>

namespace asr {

inline const std::string kSessionFolders = "sessions";

inline const std::string kArtifactFolders = "artifacts";
inline const std::string kJournalFile = "commands";
inline const std::string kCheckpointFolders = "checkpoints";  // in a session's folder
inline const std::string kSnapshotFolders = "snapshots";
inline const std::string kSavedFolder = "saved";   // files that have no name
inline const std::string kLayerFolder = "layers";  // memory of interpreters

// Inside a sandbox: where a session's own authority is written down, which is no doing of its
// programs.
inline const std::string kTrustFolder = "/etc/agent-sandbox";
inline const std::string kTrustFile = kTrustFolder + "/ca.pem";
inline const std::string kTrustFileOfReadOnly = "/tmp/agent-sandbox-ca.pem";
inline bool is_of_trust(std::string_view path) {
  return path == kTrustFolder || path == kTrustFile || path == kTrustFileOfReadOnly;
}

inline std::string disk_of(const std::string& id) { return kSessionFolders + "/" + id + "/disk"; }

}  // namespace asr
