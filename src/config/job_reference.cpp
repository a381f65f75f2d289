// Prints the table of keys as help text and as a page.
#include "base/errors.hpp"
#include "config/job_keys.hpp"

namespace switchyard::config {
namespace {

std::string type_words(const KeyInfo& key) {
  switch (key.type) {
    case KeyType::boolean:
      return "true, false";
    case KeyType::integer:
      return "integer";
    case KeyType::integers:
      return "list of integers";
    case KeyType::number:
      return "number";
    case KeyType::text:
      return "text";
    case KeyType::choice:
      return fmt::format("{}", fmt::join(key.choices, ", "));
    case KeyType::bytes:
      return "memory";
    case KeyType::duration:
      return "duration";
  }
  throw InternalError("type_words: unknown type of key");
}

/// "integer at least 1, in tokens".
std::string value_words(const KeyInfo& key) {
  const bool bounded = key.type == KeyType::integer || key.type == KeyType::number;
  const std::string range = bounded ? range_words(key.range) : "";
  return type_words(key) + (range.empty() ? "" : " " + range) + (key.unit.empty() ? "" : ", in " + key.unit);
}

template <class Owner>
std::string default_words(const Key<Owner>& key) {
  return key.fallback.empty() ? toml_literal(key, key.get(Owner{})) : key.fallback;
}

struct Section {
  std::string title;
  std::string remark;
};

/// The heading of a key's section.
Section section_of(const std::string& name) {
  const std::string section = name.substr(0, name.find('.'));
  if (name.find('.') == std::string::npos) return {"Top of the file", ""};
  if (section == "model")
    return {"[model]",
            "Give exactly one of preset, path, and sizes. With a preset, all other keys except the sizes may be given "
            "too."};
  if (section == "batch") return {"[batch]", "Give exactly one of sequences and tokens."};
  if (section == "parallel")
    return {"[parallel]",
            "Settings of all strategies that are given by their degrees. A bucket's own settings take precedence."};
  if (section == "compression")
    return {"[compression]",
            "How messages of all strategies that are given by their degrees are encoded, by what they carry. A "
            "bucket's own settings take precedence. Where the planner chooses the strategies, it takes those of these "
            "codecs with which a strategy is quicker. [codecs.md](codecs.md) has the codecs and their errors."};
  return {"[" + section + "]", ""};
}

constexpr const char* kBucketRemark =
    "One table per range of document lengths, longest first; without any, or where all have the strategy \"auto\", the "
    "planner chooses. A bucket holds the documents that are longer than the next bucket's max_length, up to its own. A "
    "single bucket is a static strategy.";

constexpr const char* kSourceRemark =
    "One table per corpus, in place of data.path or validation.path. Batches take the next document from the source "
    "that is furthest "
    "behind its share of tokens; each source has epochs of its own. All must be prepared with the same tokenizer.";

/// Calls section(Section) at each new heading and row(name, key, default) for each key.
template <class OnSection, class OnKey>
void each_key(OnSection on_section, OnKey on_key) {
  std::string title;
  for (const Key<JobDraft>& key : job_keys()) {
    const Section section = section_of(key.name);
    if (section.title != title) on_section(section);
    title = section.title;
    on_key(key, default_words(key));
  }
  on_section(Section{"[[data.source]], [[validation.source]]", kSourceRemark});
  for (const Key<DataSource>& key : source_keys()) on_key(key, default_words(key));
  on_section(Section{"[[bucket]]", kBucketRemark});
  for (const Key<BucketDraft>& key : bucket_keys()) on_key(key, default_words(key));
}

}  // namespace

std::string help_keys() {
  std::string text =
      "Keys of a job file, each with its values, its default and its meaning.\nOverride one with --set key=value, a "
      "bucket's with --set "
      "bucket.0.key=value, a source's with --set data.source.0.key=value.\n";
  each_key(
      [&](const Section& section) {
        text += fmt::format("\n{}\n", section.title);
        if (!section.remark.empty()) text += fmt::format("  {}\n", section.remark);
      },
      [&](const KeyInfo& key, const std::string& fallback) {
        text += fmt::format("  {}  ({}; default {})\n      {}\n", key.name, value_words(key), fallback, key.meaning);
      });
  return text;
}

std::string job_reference_markdown() {
  std::string text =
      "# Job reference\n\n"
      "Every key of a job file. The program generates this page from its table of keys; `switchyard train --help-keys` "
      "prints\n"
      "the same. `--set key=value` overrides a key, `--set bucket.0.key=value` a key of a bucket,\n"
      "`--set data.source.0.key=value` one of a source. Memory is written as "
      "`\"16 GiB\"` (B, KiB, MiB, GiB, TiB, or kB, MB, GB, TB), a duration as `\"30 s\"` (ns, us, ms, s, min, h).\n";
  each_key(
      [&](const Section& section) {
        text += fmt::format("\n## {}\n\n", section.title);
        if (!section.remark.empty()) text += fmt::format("{}\n\n", section.remark);
        text += "| key | value | default | meaning |\n|---|---|---|---|\n";
      },
      [&](const KeyInfo& key, const std::string& fallback) {
        text += fmt::format("| `{}` | {} | {} | {} |\n", key.name, value_words(key), fallback, key.meaning);
      });
  return text;
}

}  // namespace switchyard::config
