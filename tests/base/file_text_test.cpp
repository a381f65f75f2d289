#include "base/file_text.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>

namespace switchyard {
namespace {

TEST(FileText, has_every_byte) {
  const std::string path = testing::TempDir() + "file_text_test", text = std::string(100'000, 'x') + '\0' + "\r\nend";
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(file_text(path), text);
  std::ofstream(path, std::ios::binary).close();
  EXPECT_EQ(file_text(path), "");
}

TEST(FileText, is_nothing_where_there_is_no_file_or_a_folder) {
  EXPECT_EQ(file_text("/nowhere/file"), std::nullopt);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(file_text(testing::TempDir()), std::nullopt);
  EXPECT_EQ(errno, EISDIR);
}

}  // namespace
}  // namespace switchyard
