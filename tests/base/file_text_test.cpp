#include "base/file_text.hpp"

#include <gtest/gtest.h>

#include <cerrno>

#include "../scratch.hpp"

namespace switchyard {
namespace {

TEST(FileText, has_every_byte) {
  const std::string text = std::string(100'000, 'x') + '\0' + "\r\nend";
  const Scratch folder;
  const std::string path = folder.file("file", text);
  EXPECT_EQ(file_text(path), text);
  folder.file("file", "");
  EXPECT_EQ(file_text(path), "");
}

TEST(FileText, is_nothing_where_there_is_no_file_or_a_folder) {
  EXPECT_EQ(file_text("/nowhere/file"), std::nullopt);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(file_text("/"), std::nullopt);
  EXPECT_EQ(errno, EISDIR);
}

}  // namespace
}  // namespace switchyard
