#include "base/file_text.hpp"

#include <gtest/gtest.h>

#include <cerrno>

#include "../message_of.hpp"
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

TEST(FileText, ends_where_a_device_never_would) {
  EXPECT_EQ(message_of([] { file_text("/dev/zero"); }),
            "/dev/zero has more than 64 MiB, the most that such a file may have. Check the path.");
}

}  // namespace
}  // namespace switchyard
