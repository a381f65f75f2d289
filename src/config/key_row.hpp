// Rows of the table of keys: a key is made from the members through which its field is reached.
#pragma once

#include <type_traits>
#include <utility>

#include "config/job_keys.hpp"

namespace switchyard::config {

constexpr double kMostInt = 1 << 30;
constexpr double kMostCount = 1e15;

/// How many values an enum has; they are numbered from 0.
template <class Enum>
constexpr int kValues = 0;
template <>
constexpr int kValues<Family> = kFamilyCount;
template <>
constexpr int kValues<AttentionKind> = 2;
template <>
constexpr int kValues<RopeScalingType> = 4;
template <>
constexpr int kValues<LongDocuments> = 3;
template <>
constexpr int kValues<LearningRateSchedule> = 5;
template <>
constexpr int kValues<DeviceType> = 3;
template <>
constexpr int kValues<SwitchPlanner> = 4;
template <>
constexpr int kValues<Inside> = 2;
template <>
constexpr int kValues<Recompute> = 4;
template <>
constexpr int kValues<Packing> = 2;
template <>
constexpr int kValues<RingDegree> = 2;
template <>
constexpr int kValues<KeyPassing> = 2;
template <>
constexpr int kValues<ScheduleKind> = 6;
template <>
constexpr int kValues<CompressedLinks> = 2;
template <>
constexpr int kValues<ErrorFeedback> = 3;
template <>
constexpr int kValues<codecs::Codec> = codecs::kCodecs;

template <class Field>
constexpr KeyType type_of() {
  if constexpr (std::is_same_v<Field, bool>)
    return KeyType::boolean;
  else if constexpr (std::is_integral_v<Field>)
    return KeyType::integer;
  else if constexpr (std::is_same_v<Field, std::vector<int>>)
    return KeyType::integers;
  else if constexpr (std::is_same_v<Field, double>)
    return KeyType::number;
  else if constexpr (std::is_same_v<Field, Bytes>)
    return KeyType::bytes;
  else if constexpr (std::is_same_v<Field, Seconds>)
    return KeyType::duration;
  else if constexpr (std::is_enum_v<Field>)
    return KeyType::choice;
  else
    return KeyType::text;
}

template <class Field>
KeyValue to_value(const Field& field) {
  if constexpr (std::is_same_v<Field, bool>)
    return field;
  else if constexpr (std::is_integral_v<Field>)
    return i64{field};
  else if constexpr (std::is_same_v<Field, std::vector<int>>)
    return std::vector<i64>(field.begin(), field.end());
  else if constexpr (std::is_same_v<Field, Bytes> || std::is_same_v<Field, Seconds>)
    return field.count;
  else if constexpr (std::is_enum_v<Field>)
    return std::string(name_of(field));
  else
    return field;
}

template <class Field>
void from_value(Field& field, const KeyValue& value) {
  if constexpr (std::is_same_v<Field, bool>)
    field = std::get<bool>(value);
  else if constexpr (std::is_integral_v<Field>)
    field = static_cast<Field>(std::get<i64>(value));
  else if constexpr (std::is_same_v<Field, std::vector<int>>) {
    const auto& items = std::get<std::vector<i64>>(value);
    field.assign(items.begin(), items.end());
  } else if constexpr (std::is_same_v<Field, Bytes>)
    field = {std::get<i64>(value)};
  else if constexpr (std::is_same_v<Field, Seconds>)
    field = {std::get<double>(value)};
  else if constexpr (std::is_enum_v<Field>) {
    for (int i = 0; i < kValues<Field>; ++i) {
      if (name_of(static_cast<Field>(i)) == std::get<std::string>(value)) field = static_cast<Field>(i);
    }
  } else
    field = std::get<Field>(value);
}

template <auto First, auto... Rest>
struct OwnerOf;
template <class Owner_, class Field, Field Owner_::*First, auto... Rest>
struct OwnerOf<First, Rest...> {
  using Owner = Owner_;
};

/// A row under construction: the field is reached through the members, the rest is said by name.
template <auto... Members>
struct Row {
  using Owner = typename OwnerOf<Members...>::Owner;
  Key<Owner> key;

  Row(std::string name, std::string meaning) {
    using Field = std::remove_cvref_t<decltype((std::declval<Owner&>().*....*Members))>;
    key.name = std::move(name);
    key.meaning = std::move(meaning);
    key.type = type_of<Field>();
    key.get = [](const Owner& owner) { return to_value((owner.*....*Members)); };
    key.set = [](Owner& owner, const KeyValue& value) { from_value((owner.*....*Members), value); };
    if constexpr (std::is_enum_v<Field>) {
      for (int i = 0; i < kValues<Field>; ++i) key.choices.emplace_back(name_of(static_cast<Field>(i)));
    }
    if constexpr (std::is_same_v<Field, int> || std::is_same_v<Field, std::vector<int>>) key.range.most = kMostInt;
    if constexpr (std::is_same_v<Field, i64>) key.range.most = kMostCount;
  }
  Row unit(std::string text) && {
    key.unit = std::move(text);
    return std::move(*this);
  }
  Row at_least(double bound) && {
    key.range.least = bound;
    return std::move(*this);
  }
  Row at_most(double bound) && {
    key.range.most = bound;
    return std::move(*this);
  }
  Row above(double bound) && {
    key.range.least = bound;
    key.range.above = true;
    return std::move(*this);
  }
  Row below(double bound) && {
    key.range.most = bound;
    key.range.below = true;
    return std::move(*this);
  }
  Row fallback(std::string text) && {
    key.fallback = std::move(text);
    return std::move(*this);
  }
  Row rank_only() && {
    key.rank_only = true;
    return std::move(*this);
  }
  Row same_function() && {
    key.same_function = true;
    return std::move(*this);
  }
  Row beside_path() && {
    key.beside_path = true;
    return std::move(*this);
  }
  /// What only the ranks of the job may know, so that it can't be in a fingerprint either.
  Row secret() && {
    key.secret = true;
    return std::move(*this).rank_only();
  }
  Row one_of(std::vector<std::string> names) && {
    key.type = KeyType::choice;
    key.choices = std::move(names);
    return std::move(*this);
  }
  operator Key<Owner>() && { return std::move(key); }  // NOLINT: rows stand in a list of keys
};

}  // namespace switchyard::config
