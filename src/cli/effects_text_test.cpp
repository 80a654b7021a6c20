#include "cli/effects_text.hpp"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

namespace asr {
namespace {

TEST(EffectsText, TellsEverythingOnce) {
  json::value effects = json::parse(R"({
    "files": [{"path": "/a", "change": "added", "type": "file", "size": 12, "size_before": 0},
              {"path": "/b", "change": "changed", "type": "file", "size": 5, "size_before": 2048},
              {"path": "/c", "change": "removed", "type": "file", "size": 0, "size_before": 8},
              {"path": "/d", "change": "added", "type": "directory", "size": 0, "size_before": 0},
              {"path": "/e", "change": "changed", "type": "file", "size": 7, "size_before": 7}],
    "files_complete": true, "processes_started": 3, "peak_memory_bytes": 1048576, "cpu_ms": 12.5,
    "bytes_written": 100, "connections": {"attempted": 2, "refused": 1},
    "refused_calls": {"mount": 2, "socket": 1}, "unknown": {}})");
  EXPECT_EQ(effects_text(effects),
            "agent-sandbox: what it did:\n"
            "  + /a (12 B)\n"
            "  ~ /b (2.0 KiB, now 5 B)\n"
            "  - /c (8 B)\n"
            "  + /d\n"
            "  ~ /e (7 B)\n"
            "  3 processes, 1.0 MiB of memory at most, 12.5 ms of processor time, 100 B written\n"
            "  2 connections attempted, 1 refused\n"
            "  refused system calls: mount 2, socket 1\n");
}

TEST(EffectsText, IsShortWhereLittleHappened) {
  json::value effects = json::parse(R"({
    "files": [], "files_complete": true, "processes_started": 1, "peak_memory_bytes": null,
    "cpu_ms": null, "bytes_written": 0, "connections": {"attempted": 0, "refused": 0},
    "refused_calls": {}, "unknown": {"peak_memory_bytes": "no group"}})");
  EXPECT_EQ(effects_text(effects),
            "agent-sandbox: what it did:\n"
            "  1 process, 0 B written\n"
            "  peak_memory_bytes is not known: no group\n");
}

TEST(EffectsText, ManyFilesAreCounted) {
  json::array files;
  for (int i = 0; i < 100; ++i)
    files.push_back({{"path", "/f"}, {"change", "added"}, {"type", "file"}, {"size", 1}});
  std::string text = effects_text({{"files", files}, {"files_complete", false}});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 43);
  EXPECT_NE(text.find("  and 60 files more\n  not all files were looked at\n"), std::string::npos);
}

// All of it comes from a server, and its names from inside a sandbox.
TEST(EffectsText, TakesWhatComes) {
  for (const char* text : {"null", "[]", "3", "{}",
                           R"({"files": 3, "cpu_ms": "x", "refused_calls": [], "unknown": 1})",
                           R"({"connections": {"attempted": -1}, "processes_started": -3})"})
    EXPECT_EQ(effects_text(json::parse(text)), "") << text;
  EXPECT_EQ(effects_text(json::parse(R"({"files": [null], "refused_calls": {"\u001b[2J": {}}})"))
                .find('\x1b'),
            std::string::npos);
  std::string text =
      effects_text(json::parse(R"({"files": [{"path": "/\u001b]0;x\u0007", "change": "added"}]})"));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace asr
