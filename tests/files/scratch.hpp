// Helpers of this layer's tests: small files, Python.
#pragma once

#include <gtest/gtest.h>
#include <stdio.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "../message_of.hpp"
#include "../scratch.hpp"

namespace switchyard::files {

inline void put(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string get(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class T>
std::span<const std::byte> raw_bytes(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

template <class T>
std::vector<T> values_of(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

inline std::string python() { return SWITCHYARD_SOURCE "/.venv/bin/python"; }

/// Standard output and error of a shell command, and its exit status at the end: "... exit 0".
inline std::string output_of(const std::string& command) {
  FILE* pipe = popen(("{ " + command + "; } 2>&1; echo exit $?").c_str(), "r");
  if (pipe == nullptr) return "no shell";
  std::string text;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) text += static_cast<char>(c);
  pclose(pipe);
  return text;
}

}  // namespace switchyard::files
