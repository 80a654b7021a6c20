// Volumes and the sessions that have them mounted. The files themselves lie elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "store/sqlite.hpp"

namespace asr {

struct VolumeRecord {
  std::string id;
  std::string owner;
  std::string name;             // one of a kind for its owner
  std::int64_t size_limit = 0;  // bytes; 0: none
  std::int64_t created_ms = 0;
  friend bool operator==(const VolumeRecord&, const VolumeRecord&) = default;
};

struct VolumeUse {
  std::string volume;
  std::string session;
  std::string path;  // where the session has it; one volume per place
  bool read_only = false;
  friend bool operator==(const VolumeUse&, const VolumeUse&) = default;
};

Result<void> insert_volume(Database& database, const VolumeRecord& record);
Result<VolumeRecord> find_volume(Database& database, std::string_view id);
Result<VolumeRecord> find_volume_by_name(Database& database, std::string_view owner,
                                         std::string_view name);
Result<std::vector<VolumeRecord>> list_volumes(Database& database, std::string_view owner);
// Errc::conflict while a session uses it. Whether it was there.
Result<bool> remove_volume(Database& database, std::string_view id);

// Errc::conflict when the volume or the session is not there, or the place is taken.
Result<void> add_volume_use(Database& database, const VolumeUse& use);
Result<std::vector<VolumeUse>> uses_of_volume(Database& database, std::string_view volume);
Result<std::vector<VolumeUse>> volumes_of_session(Database& database, std::string_view session);
// When a session ends but its record stays.
Result<std::int64_t> remove_volume_uses(Database& database, std::string_view session);

}  // namespace asr
