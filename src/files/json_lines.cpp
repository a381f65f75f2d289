#include "files/json_lines.hpp"

#include <nlohmann/json.hpp>
#include <string>

#include "base/errors.hpp"

namespace switchyard::files {

namespace {

using nlohmann::json;

/// The step of a line; 0 if it has none.
i64 step_of(const json& object) {
  if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) return 0;
  return object["step"].get<i64>();
}

/// Keeps the complete lines up to `step`; the log is replaced only if that changes it. Returns the last line's step.
i64 keep_until(const std::filesystem::path& path, i64 step) {
  if (!std::filesystem::exists(path)) return 0;
  i64 last = 0;
  const std::string text = read_text(path);
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string line = text.substr(begin, end + 1 - begin);
    const json object = json::parse(line, nullptr, false);
    begin = end + 1;
    if (object.is_discarded() || step_of(object) > step) continue;
    kept += line;
    last = step_of(object);
  }
  if (kept != text) write_text(path, kept);
  return last;
}

}  // namespace

JsonLines JsonLines::open(const std::filesystem::path& folder, i64 step, const char* name) {
  make_folder(folder);
  JsonLines log;
  log.path_ = folder / name;
  log.last_kept_ = keep_until(log.path_, step);
  log.file_ = open_for_appending(log.path_);
  return log;
}

void JsonLines::append(const nlohmann::ordered_json& object) {
  // Each line is one write, so a killed run leaves at most the last line incomplete.
  const std::string line = object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  write_all(file_, std::as_bytes(std::span(line)), -1, path_, static_cast<i64>(line.size()));
}

}  // namespace switchyard::files
