// One build of a template while it is under way. For templates.cpp and template_build.cpp only.
#pragma once

#include "session/templates.hpp"

namespace asr {

inline constexpr std::string_view kBuildPrefix = "template-";  // of the snapshot of a build

struct Templates::Job {
  Caller caller;
  TemplateBuild build;
  TemplateRecipe recipe;
  std::shared_ptr<Session> session;
  std::vector<TemplateLogLine> log;
  std::size_t log_bytes = 0;
  std::string step;  // what is done now
  std::size_t copies = 0;

  void say(std::string level, std::string message);
};

std::vector<TemplateLogLine> template_log_from(const std::string& text);
std::string text_of(const std::vector<TemplateLogLine>& log);

}  // namespace asr
