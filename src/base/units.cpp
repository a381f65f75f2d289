#include "base/units.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>

#include "base/errors.hpp"

namespace switchyard {
namespace {

struct Unit {
  std::string_view name;
  double size;
};

constexpr double kKi = 1024;
constexpr std::array<Unit, 9> kByteUnits{{{"b", 1},
                                          {"kib", kKi},
                                          {"mib", kKi* kKi},
                                          {"gib", kKi* kKi* kKi},
                                          {"tib", kKi* kKi* kKi* kKi},
                                          {"kb", 1e3},
                                          {"mb", 1e6},
                                          {"gb", 1e9},
                                          {"tb", 1e12}}};
constexpr std::array<Unit, 6> kTimeUnits{
    {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}}};

constexpr std::array<Unit, 13> kBandwidthUnits{{{"b/s", 1},
                                                {"kib/s", kKi},
                                                {"mib/s", kKi* kKi},
                                                {"gib/s", kKi* kKi* kKi},
                                                {"tib/s", kKi* kKi* kKi* kKi},
                                                {"kb/s", 1e3},
                                                {"mb/s", 1e6},
                                                {"gb/s", 1e9},
                                                {"tb/s", 1e12},
                                                {"kbit/s", 1e3 / 8},
                                                {"mbit/s", 1e6 / 8},
                                                {"gbit/s", 1e9 / 8},
                                                {"tbit/s", 1e12 / 8}}};
constexpr std::array<Unit, 4> kFlopUnits{{{"mflop/s", 1e6}, {"gflop/s", 1e9}, {"tflop/s", 1e12}, {"pflop/s", 1e15}}};

std::string_view trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

/// number * unit; a missing unit counts as 1. Nothing if the text is not a quantity or is negative.
std::optional<double> parse_quantity(std::string_view text, std::span<const Unit> units) {
  text = trim(text);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  std::string name(trim(text.substr(static_cast<size_t>(end - text.data()))));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name.empty()) return number;
  for (const Unit& unit : units) {
    if (unit.name == name) return number * unit.size;
  }
  return std::nullopt;
}

/// Three digits, without a fraction of zeros: 16, 1.5, 0.25.
std::string three_digits(double number) {
  const int decimals = number >= 100 ? 0 : number >= 10 ? 1 : 2;
  std::string text = fmt::format("{:.{}f}", number, decimals);
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

Bytes bytes_of(Elements elements, DType type) { return {elements.count * size_of(type)}; }

Bytes parse_bytes(std::string_view text) {
  const std::optional<double> bytes = parse_quantity(text, kByteUnits);
  constexpr double kMost = 9e18;
  if (!bytes || *bytes > kMost) {
    user_error(
        "\"{}\" is not an amount of memory. Write a number and B, KiB, MiB, GiB, TiB (or kB, MB, GB, TB), such as \"16 "
        "GiB\".",
        text);
  }
  return {static_cast<i64>(std::llround(*bytes))};
}

std::string format_bytes(Bytes bytes) {
  if (bytes.count < 0 && bytes.count > std::numeric_limits<i64>::min()) return "-" + format_bytes({-bytes.count});
  constexpr std::array<std::string_view, 7> kNames{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double number = static_cast<double>(bytes.count);
  size_t unit = 0;
  while (number >= kKi - 0.5 && unit + 1 < kNames.size()) {
    number /= kKi;
    ++unit;
  }
  return fmt::format("{} {}", three_digits(number), kNames[unit]);
}

BytesPerSecond parse_bandwidth(std::string_view text) {
  const std::optional<double> rate = parse_quantity(text, kBandwidthUnits);
  if (!rate) {
    user_error(
        "\"{}\" is not a bandwidth. Write a number and MB/s, GB/s, TB/s (or MiB/s, GiB/s, TiB/s; Mbit/s, Gbit/s, "
        "Tbit/s), "
        "such as "
        "\"300 GB/s\".",
        text);
  }
  return {*rate};
}

FlopsPerSecond parse_flop_rate(std::string_view text) {
  const std::optional<double> rate = parse_quantity(text, kFlopUnits);
  if (!rate) {
    user_error(
        "\"{}\" is not a compute rate. Write a number and MFLOP/s, GFLOP/s, TFLOP/s or PFLOP/s, such as \"312 "
        "TFLOP/s\".",
        text);
  }
  return {*rate};
}

Seconds parse_duration(std::string_view text) {
  const std::optional<double> seconds = parse_quantity(text, kTimeUnits);
  if (!seconds)
    user_error("\"{}\" is not a duration. Write a number and ns, us, ms, s, min or h, such as \"30 s\".", text);
  return {*seconds};
}

std::string format_duration(Seconds time) {
  const double seconds = time.count;
  if (seconds < 0) return "-" + format_duration({-seconds});
  if (seconds == 0) return "0 s";
  if (seconds < 999.5e-9) return three_digits(seconds * 1e9) + " ns";
  if (seconds < 999.5e-6) return three_digits(seconds * 1e6) + " us";
  if (seconds < 999.5e-3) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 59.95) return three_digits(seconds) + " s";
  if (!std::isfinite(seconds) || seconds > 9e15) return "forever";
  const i64 whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  const i64 minutes = std::llround(seconds / 60);
  return fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
}

}  // namespace switchyard
