// Errors of a configuration, collected so that one message lists all of them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/errors.hpp"

namespace switchyard::config {

class Errors {
 public:
  /// subject: what has the errors.
  explicit Errors(std::string subject = "the job") : subject_(std::move(subject)) {}

  /// where: "job.toml:12" or "--set run.steps=ten"; the text says what is wrong and how to fix it.
  void add(const std::string& where, const std::string& text) {
    lines_.push_back(where.empty() ? text : where + ": " + text);
  }

  bool empty() const { return lines_.empty(); }

  /// UserError with a line per error, in the order found, if there is any.
  void throw_if_any() const {
    if (lines_.empty()) return;
    if (lines_.size() == 1) throw UserError(lines_[0]);
    throw UserError(fmt::format("{} errors in {}:\n  {}", lines_.size(), subject_, fmt::join(lines_, "\n  ")));
  }

 private:
  std::string subject_;
  std::vector<std::string> lines_;
};

}  // namespace switchyard::config
