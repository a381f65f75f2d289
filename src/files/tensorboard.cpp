#include "files/tensorboard.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>

#include "base/errors.hpp"
#include "files/crc32c.hpp"

namespace switchyard::files {

namespace {

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

template <class Word>
std::string little_endian(Word word) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(Word); ++i) bytes += static_cast<char>((word >> (8 * i)) & 0xff);
  return bytes;
}

// Protocol-buffer encoding: a key of field number and wire type, then the value.
// Source: https://protobuf.dev/programming-guides/encoding
std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}

std::string varint_field(int field, std::uint64_t value) { return static_cast<char>(field << 3 | 0) + varint(value); }

std::string double_field(int field, double value) {
  return static_cast<char>(field << 3 | 1) + little_endian(std::bit_cast<std::uint64_t>(value));
}

std::string bytes_field(int field, std::string_view value) {
  return static_cast<char>(field << 3 | 2) + varint(value.size()) + std::string(value);
}

std::string float_field(int field, float value) {
  return static_cast<char>(field << 3 | 5) + little_endian(std::bit_cast<std::uint32_t>(value));
}

// Event: wall_time 1, step 2, file_version 3, summary 5, session_log 7. SessionLog: status 1 (START is 1).
// Summary: value 1. Value: tag 1, simple_value 2.
std::string event(double wall_time, i64 step, const std::string& content) {
  return double_field(1, wall_time) + varint_field(2, static_cast<std::uint64_t>(step)) + content;
}

void append(const Descriptor& file, const std::filesystem::path& path, std::string_view payload) {
  const std::string record = tf_record(payload);
  write_all(file, std::as_bytes(std::span(record)), -1, path, static_cast<i64>(record.size()));
}

/// A name that sorts behind those that are there, so that viewers read an earlier run's file first: by time, or where
/// a clock was set back, behind the latest.
std::string file_name(const std::filesystem::path& folder) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host = {'h', 'o', 's', 't'};
  i64 micros =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  for (const auto& item : std::filesystem::directory_iterator(folder)) {
    const std::string name = item.path().filename().string();
    long long second = 0;
    int fraction = 0;
    if (name.starts_with(kEventsPrefix) &&
        std::sscanf(name.c_str() + kEventsPrefix.size(), "%10lld.%6d.", &second, &fraction) == 2)
      micros = std::max<i64>(micros, second * 1'000'000 + fraction + 1);
  }
  return fmt::format("{}{:010}.{:06}.{}.{}", kEventsPrefix, micros / 1'000'000, micros % 1'000'000, host.data(),
                     getpid());
}

}  // namespace

std::string tf_record(std::string_view payload) {
  const std::string length = little_endian(std::uint64_t{payload.size()});
  return length + little_endian(masked_crc32c(length)) + std::string(payload) + little_endian(masked_crc32c(payload));
}

EventWriter EventWriter::create(const std::filesystem::path& folder, i64 first_step) {
  make_folder(folder);
  EventWriter writer;
  writer.path_ = folder / file_name(folder);
  writer.file_ = open_for_appending(writer.path_);
  append(writer.file_, writer.path_, event(now(), 0, bytes_field(3, "brain.Event:2")));
  if (first_step > 0) append(writer.file_, writer.path_, event(now(), first_step, bytes_field(7, varint_field(1, 1))));
  return writer;
}

void EventWriter::add(i64 step, const Scalars& scalars, double wall_time) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    summary += bytes_field(1, bytes_field(1, tag) + float_field(2, static_cast<float>(value)));
  }
  append(file_, path_, event(wall_time < 0 ? now() : wall_time, step, bytes_field(5, summary)));
}

}  // namespace switchyard::files
