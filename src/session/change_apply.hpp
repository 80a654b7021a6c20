// Takes what changed in a sandbox into a folder of the host's, by the rules of folder_writer.hpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "session/file_diff.hpp"
#include "session/folder_writer.hpp"

namespace asr {

struct ApplyRequest {
  std::string from = "/workspace";  // What lies there is what the folder is to hold.
  bool partial = false;             // What cannot be done does not keep the rest from being done.
  FolderRules rules;
};

struct Applied {
  struct Left {
    std::string path;  // in the sandbox
    std::string why;
  };
  std::vector<FolderWriter::Done> files;
  std::vector<Left> left;  // what was not done
};
json::object json_of(const Applied& applied);

// Those below `from` that are, or lie in, one of `paths`; all, if there is none. A path is absolute
// or begins at `from`. One where nothing changed is an error.
Result<std::vector<FileChange>> choose_changes(const Changes& changes, const std::string& from,
                                               const std::vector<std::string>& paths);

// What they are changes of, and may go on changing.
struct ChangeSource {
  std::function<asio::awaitable<Result<Changes>>()> list;  // as it is now
  OpenFile contents;
};
ChangeSource changes_of(const std::shared_ptr<Sandbox>& sandbox);

// All is looked at before anything is written; then all of it is done, or nothing: that is so, too,
// if one of the changes is another one once contents were copied. As with diff_files(): it takes as
// long as copying does.
asio::awaitable<Result<Applied>> apply_changes(std::vector<FileChange> changes, ChangeSource source,
                                               UniqueFd folder, ApplyRequest request);

}  // namespace asr
