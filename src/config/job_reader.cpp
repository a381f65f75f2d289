#include "config/job_reader.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <sstream>

#include "base/file_text.hpp"
#include "base/text.hpp"
#include "config/names_elsewhere.hpp"
#include "config/toml_nodes.hpp"

namespace switchyard::config {
namespace {

template <class Owner>
const Key<Owner>* find_key(const std::vector<Key<Owner>>& keys, std::string_view name) {
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const KeyInfo& key) { return key.name == name; });
  return found == keys.end() ? nullptr : &*found;
}

template <class Owner>
bool is_section(const std::vector<Key<Owner>>& keys, const std::string& name) {
  return std::any_of(keys.begin(), keys.end(), [&](const KeyInfo& key) { return key.name.starts_with(name + "."); });
}

std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

constexpr const char* kBuckets = "bucket";

bool is_source_list(const std::string& name) { return name == "data.source" || name == "validation.source"; }

/// Every name that a job file may have: keys and sections; those of an entry of a list follow its name, as "bucket.0.".
std::vector<std::string> known_names(const std::string& entry) {
  std::vector<std::string> names;
  for (const KeyInfo& key : job_keys()) names.push_back(key.name);
  for (const char* section : {"model", "data", "data.source", "validation", "validation.source", "batch", kBuckets,
                              "parallel", "compression", "optimizer", "run", "log", "fabric", "switch"})
    names.emplace_back(section);
  if (is_source_list(entry.substr(0, entry.find('.', entry.find('.') + 1))))
    for (const KeyInfo& key : source_keys()) names.push_back(entry + key.name);
  else
    for (const KeyInfo& key : bucket_keys()) names.push_back((entry.empty() ? "bucket.0." : entry) + key.name);
  return names;
}

/// The known key that an unknown one most likely means: the same word in another section, else the fewest changed
/// letters.
std::string likely_name(const std::string& name, const std::string& entry) {
  const std::vector<std::string> names = known_names(entry);
  for (const std::string& known : names)
    if (last_part(known) == last_part(name) && last_part(name) != "name") return known;  // many things have names
  const std::string section = name.substr(0, name.size() - std::min(name.size(), last_part(name).size() + 1));
  if (!is_section(job_keys(), section)) return nearest_name(name, names);
  std::vector<std::string> inside;
  for (const KeyInfo& key : job_keys())
    if (key.name == section + "." + last_part(key.name)) inside.push_back(last_part(key.name));
  const std::string nearest = nearest_name(last_part(name), inside);
  return nearest.empty() ? "" : section + "." + nearest;
}

std::string no_key(const std::string& name, const std::string& entry) {
  const std::string_view instead = instead_of(last_part(name));
  if (!instead.empty()) return fmt::format("{} is not a key. {}", name, instead);
  const std::string likely = likely_name(name, entry);
  return fmt::format(
      "{} is not a key. {}", name,
      likely.empty() ? "`switchyard train --help-keys` lists all keys." : fmt::format("Did you mean {}?", likely));
}

/// Nothing unless the node is a list of integers.
std::optional<KeyValue> integers_of(const toml::node& node) {
  const toml::array* list = node.as_array();
  if (list == nullptr) return std::nullopt;
  std::vector<i64> items;
  for (const toml::node& item : *list) {
    const auto integer = item.value_exact<i64>();
    if (!integer) return std::nullopt;
    items.push_back(*integer);
  }
  return items;
}

/// The node's value in the key's type; nothing if it is of another type. UserError if a text can't be read as a
/// quantity.
std::optional<KeyValue> value_of(const KeyInfo& key, const toml::node& node) {
  const auto text = node.value_exact<std::string>();
  const auto integer = node.value_exact<i64>();
  std::optional<double> number = node.value_exact<double>();
  if (integer) number = static_cast<double>(*integer);
  switch (key.type) {
    case KeyType::boolean:
      if (const auto value = node.value_exact<bool>()) return *value;
      return std::nullopt;
    case KeyType::integer:
      if (integer) return *integer;
      return std::nullopt;
    case KeyType::integers:
      return integers_of(node);
    case KeyType::number:
      if (number) return *number;
      return std::nullopt;
    case KeyType::text:
      if (text) return *text;
      return std::nullopt;
    case KeyType::choice:
      if (text && std::find(key.choices.begin(), key.choices.end(), *text) != key.choices.end()) return *text;
      return std::nullopt;
    case KeyType::bytes:
      if (text) return *text == "none" ? i64{0} : parse_bytes(*text).count;
      if (integer) return *integer;
      return std::nullopt;
    case KeyType::duration:
      if (text) return parse_duration(*text).count;
      if (number) return *number;
      return std::nullopt;
  }
  return std::nullopt;
}

/// Whether the text is a whole number that is none of TOML's integers, as it has too many digits.
bool has_too_many_digits(const toml::node& node) {
  const auto text = node.value_exact<std::string>();
  i64 value = 0;
  if (!text) return false;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  return error == std::errc::result_out_of_range && end == text->data() + text->size();
}

/// An override's value: TOML, or the bare text where the key wants text.
toml::table set_value(const std::string& text, const KeyInfo* key) {
  const bool textual = key != nullptr && key->type != KeyType::boolean && key->type != KeyType::integer &&
                       key->type != KeyType::integers && key->type != KeyType::number;
  const bool quoted = !text.empty() && (text.front() == '"' || text.front() == '\'' ||
                                        (text.front() == '{' && key != nullptr && key->name == "strategy"));
  if (!textual || quoted) {
    try {
      toml::table table = toml::parse("value = " + text);
      if (table.size() == 1) return table;
    } catch (const toml::parse_error&) {
      // Not TOML: the bare text, whose type the reader judges.
    }
  }
  return toml::table{{"value", text}};
}

class Reader {
 public:
  Reader(const std::string& origin, Errors& errors) : errors_(errors) { draft_.origin = origin; }

  void override_value(toml::table& root, const Override& given);
  JobDraft read(const toml::table& root);

 private:
  template <class Owner>
  void read_table(const toml::table& table, const std::string& inside, const std::string& shown_prefix,
                  const std::vector<Key<Owner>>& keys, Owner& owner);
  template <class Owner>
  void take(const Key<Owner>& key, const toml::node& node, const std::string& name, Owner& owner);
  template <class Entry>
  void read_entries(const toml::node& node, const std::string& name, const std::vector<Key<Entry>>& keys,
                    std::vector<Entry>& entries);

  /// "job.toml:12", or the override that brought the key.
  std::string where(const std::string& name, const toml::node& node) const {
    for (auto set = sets_.rbegin(); set != sets_.rend(); ++set) {
      if (name == set->first || name.starts_with(set->first + ".")) return set->second;
    }
    return node.source().begin.line == 0 ? draft_.origin
                                         : fmt::format("{}:{}", draft_.origin, node.source().begin.line);
  }

  Errors& errors_;
  JobDraft draft_;
  std::vector<std::pair<std::string, std::string>> sets_;  // key, where it was given
};

/// Splits "bucket.0.max_length" at its dots.
std::vector<std::string> key_parts(const std::string& key) {
  std::vector<std::string> parts;
  std::istringstream stream(key);
  for (std::string part; std::getline(stream, part, '.');) parts.push_back(part);
  return parts;
}

/// The first parts of a key, joined again.
std::string joined(const std::vector<std::string>& parts, size_t count) {
  return fmt::format("{}", fmt::join(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(count), "."));
}

/// The row of a key in any table.
const KeyInfo* find_any_key(const std::string& name, const std::vector<std::string>& parts) {
  const auto inside = [&](size_t count) { return name.substr(joined(parts, count).size() + 1); };
  if (parts.size() > 2 && parts[0] == kBuckets) return find_key(bucket_keys(), inside(2));
  if (parts.size() > 3 && is_source_list(joined(parts, 2))) return find_key(source_keys(), inside(3));
  return find_key(job_keys(), name);
}

/// The number of an entry of a list; the largest for what is no such number.
size_t index_of(const std::string& part) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
  return error == std::errc() && end == part.data() + part.size() ? index : std::numeric_limits<size_t>::max();
}

/// Steps from a table or list to the named part and creates it if it is missing; nullptr if that is impossible.
toml::node* step_into(toml::node& node, const std::string& part, bool list) {
  if (toml::table* table = node.as_table()) {
    if (!table->contains(part)) {
      if (list)
        table->insert(part, toml::array{});
      else
        table->insert(part, toml::table{});
    }
    return table->get(part);
  }
  toml::array* items = node.as_array();
  const size_t index = index_of(part);
  if (items == nullptr || index > items->size()) return nullptr;
  if (index == items->size()) items->push_back(toml::table{});
  return items->get(index);
}

/// Whether an override of one key takes the place of another one, which excludes it.
bool replaces(std::string_view name, const KeyInfo& other) {
  if (name == "batch.sequences") return other.name == "batch.tokens";
  if (name == "batch.tokens") return other.name == "batch.sequences";
  if (name == "model.preset") return other.name == "model.path" || std::ranges::count(kSizeKeys, other.name) > 0;
  return name == "model.path" && other.name.starts_with("model.") && other.name != name && !other.beside_path;
}

/// Why there is no entry with this number: "bucket.7.max_length" in a job with two buckets. Nothing for other keys.
std::optional<std::string> no_entry(const toml::table& root, const std::vector<std::string>& parts) {
  const size_t depth = parts[0] == kBuckets ? 1 : parts.size() > 1 && is_source_list(joined(parts, 2)) ? 2 : 0;
  if (depth == 0 || parts.size() < depth + 2) return std::nullopt;
  const std::string list = joined(parts, depth);
  const toml::array* entries = root.at_path(list).as_array();
  if (entries == nullptr && root.at_path(list)) return std::nullopt;
  const size_t count = entries == nullptr ? 0 : entries->size();
  if (index_of(parts[depth]) < count) return std::nullopt;
  const std::string there = count == 0   ? "none"
                            : count == 1 ? fmt::format("{}.0 alone", list)
                                         : fmt::format("{0}.0 to {0}.{1}", list, count - 1);
  return fmt::format("of {}s the job has {}; {}.{} adds one.", last_part(list), there, list, count);
}

void Reader::override_value(toml::table& root, const Override& given) {
  const std::string& name = given.key;
  const std::vector<std::string> parts = key_parts(name);
  const KeyInfo* key = parts.empty() ? nullptr : find_any_key(name, parts);
  const std::string where = key != nullptr && key->secret ? "--set " + name : given.where;
  if (parts.empty()) {
    errors_.add(where, "key=value is needed, for example --set run.steps=100.");
    return;
  }
  if (name.ends_with('.') || std::ranges::count(parts, "") > 0) {  // "run..steps"
    errors_.add(where, no_key(name, ""));
    return;
  }
  toml::node* node = &root;
  for (size_t i = 0; i + 1 < parts.size() && node != nullptr; ++i) {
    const bool list = joined(parts, i + 1) == kBuckets || is_source_list(joined(parts, i + 1));
    const bool anew = node->is_table() && !node->as_table()->contains(parts[i]);
    node = list && anew && parts[i + 1] != "0" ? nullptr : step_into(*node, parts[i], list);
  }
  toml::table* table = node == nullptr ? nullptr : node->as_table();
  if (table == nullptr) {
    errors_.add(
        where,
        fmt::format(
            "{} can't be set: {}", name,
            no_entry(root, parts).value_or("what precedes its last dot is not a table or an entry of the job.")));
    return;
  }
  const auto* text = std::get_if<std::string>(&given.value);
  if (text && !is_utf8(*text)) {
    errors_.add(where,
                fmt::format("the value of {} is not UTF-8 text, as job files require. Use other characters.", name));
    return;
  }
  for (const KeyInfo& other : job_keys())
    if (replaces(name, other)) table->erase(last_part(other.name));
  if (given.written)
    table->insert_or_assign(parts.back(), *set_value(*text, key).get("value"));
  else if (text)
    table->insert_or_assign(parts.back(), *text);
  else
    table->insert_or_assign(parts.back(), std::get<i64>(given.value));
  sets_.emplace_back(name, where);
}

template <class Owner>
void Reader::take(const Key<Owner>& key, const toml::node& node, const std::string& name, Owner& owner) {
  std::string message;
  try {
    const std::optional<KeyValue> value = value_of(key, node);
    const bool container = node.is_table() || node.is_array() || key.secret;
    if (!value && key.type == KeyType::choice && node.is_string()) {
      message = fmt::format("{} = {} is unknown; {}.", name, shown(node), wanted(key));
    } else if (!value && key.type == KeyType::integer && has_too_many_digits(node)) {
      message = fmt::format("{} = {} is out of range; {}.", name, *node.value<std::string>(), wanted(key));
    } else if (!value) {
      message =
          fmt::format("{}{} is {}; {}.", name, container ? "" : " = " + shown(node), type_name(node), wanted(key));
    } else if (const std::string range = out_of_range(key, *value); !range.empty()) {
      message = fmt::format("{} = {} {}.", name, shown(node), range);
    } else {
      key.set(owner, *value);
      draft_.given[name] = where(name, node);
      return;
    }
  } catch (const UserError& error) {
    message = fmt::format("{} = {}", name, error.what());
  }
  errors_.add(where(name, node), message);
  draft_.faulty.insert(name);
}

template <class Owner>
void Reader::read_table(const toml::table& table, const std::string& inside, const std::string& shown_prefix,
                        const std::vector<Key<Owner>>& keys, Owner& owner) {
  for (const auto& [part, node] : table) {
    const std::string name = inside + std::string(part.str());
    const std::string full = shown_prefix + name;
    const bool quoted =
        part.str().find('.') != std::string_view::npos;  // "run.steps" = 1 is one word, not a key of [run]
    const Key<Owner>* key = quoted ? nullptr : find_key(keys, name);
    if (!quoted && is_section(keys, name) && node.is_table()) {
      read_table(*node.as_table(), name + ".", shown_prefix, keys, owner);
    } else if (key != nullptr) {
      take(*key, node, full, owner);
    } else if (full == kBuckets) {
      read_entries(node, full, bucket_keys(), draft_.buckets);
    } else if (is_source_list(full)) {
      for (const auto& [list, sources] : source_lists(draft_.job))
        if (list == full) read_entries(node, full, source_keys(), *sources);
    } else if (!quoted && is_section(keys, name)) {
      const bool list = node.is_array();
      errors_.add(where(full, node),
                  fmt::format("{}{} is {}; a table is needed: write [{}] {}.", full, list ? "" : " = " + shown(node),
                              type_name(node), full, list ? "with single brackets, once" : "above its keys"));
      draft_.faulty.insert(full + ".");
    } else {
      errors_.add(where(full, node), no_key(full, shown_prefix));
    }
  }
}

template <class Entry>
void Reader::read_entries(const toml::node& node, const std::string& name, const std::vector<Key<Entry>>& keys,
                          std::vector<Entry>& entries) {
  const toml::array* list = node.as_array();
  if (list == nullptr ||
      !std::all_of(list->begin(), list->end(), [](const toml::node& item) { return item.is_table(); })) {
    errors_.add(where(name, node),
                fmt::format("{0} must be a list of tables: write [[{0}]] with double brackets above each {1}.", name,
                            last_part(name)));
    draft_.faulty.insert(name);
    return;
  }
  if (list->empty()) {
    errors_.add(where(name, node), fmt::format("{0} is an empty list. Write [[{0}]] above each {1}, or leave it out.",
                                               name, last_part(name)));
    draft_.faulty.insert(name);
    return;
  }
  for (const toml::node& item : *list) {
    Entry entry;
    read_table(*item.as_table(), "", fmt::format("{}.{}.", name, entries.size()), keys, entry);
    entries.push_back(std::move(entry));
  }
}

JobDraft Reader::read(const toml::table& root) {
  read_table(root, "", "", job_keys(), draft_);
  return std::move(draft_);
}

// Only one of an option and a --set may say the value of a key.
void refuse_two_values(const std::vector<Override>& overrides) {
  const auto text = [](const Override& given) {
    const auto* number = std::get_if<i64>(&given.value);
    return number ? fmt::format("{}", *number) : std::get<std::string>(given.value);
  };
  for (const Override& option : overrides)
    for (const Override& set : overrides)
      if (!option.written && set.written && set.key == option.key && text(set) != text(option))
        user_error("{}: {} gives {} another value. Keep one of them.", option.where, set.where, set.key);
}

}  // namespace

std::vector<Override> overrides_of(const std::vector<std::string>& sets) {
  std::vector<Override> overrides;
  for (const std::string& set : sets) {
    const size_t equals = set.find('=');
    const bool whole = equals != std::string::npos;
    overrides.push_back({.where = "--set " + set,
                         .key = whole ? set.substr(0, equals) : "",
                         .value = whole ? set.substr(equals + 1) : "",
                         .written = true});
  }
  return overrides;
}

JobDraft read_draft(const std::string& text, const std::string& origin, const std::vector<Override>& overrides,
                    Errors& errors) {
  refuse_two_values(overrides);
  toml::table root = parse_toml(text, origin);
  Reader reader(origin, errors);
  for (const Override& given : overrides) reader.override_value(root, given);
  return reader.read(root);
}

JobDraft load_draft(const std::string& path, const std::vector<Override>& overrides, Errors& errors) {
  const std::optional<std::string> text = file_text(path);
  if (!text) user_error("{}: can't read the job file. Check the path.", path);
  return read_draft(*text, path, overrides, errors);
}

}  // namespace switchyard::config
