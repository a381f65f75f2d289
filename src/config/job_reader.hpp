// Reads TOML text and overrides into a draft of the job, by the table of keys.
#pragma once

#include <string>
#include <vector>

#include "config/errors.hpp"
#include "config/job_keys.hpp"

namespace switchyard::config {

/// A key that the command line gives.
struct Override {
  std::string where;  // what was typed, for messages: "--set run.steps=10", "--steps 10"
  std::string key;    // dotted; empty: a --set without one
  KeyValue value;     // an integer or a text
  // The value is text as given to --set: TOML, or bare for a key of text. Otherwise it is the value itself.
  bool written = false;
};

/// What `--set` was given, once or several times, as "key=value".
std::vector<Override> overrides_of(const std::vector<std::string>& sets);

/// Reads every key into the draft; unknown keys (with the nearest known one), wrong types and values out of range go to
/// `errors` with file and line. Overrides are applied first, in order. UserError at once for text that is not TOML.
JobDraft read_draft(const std::string& text, const std::string& origin, const std::vector<Override>& overrides,
                    Errors& errors);
/// The same from a file. UserError at once if it can't be read.
JobDraft load_draft(const std::string& path, const std::vector<Override>& overrides, Errors& errors);

}  // namespace switchyard::config
