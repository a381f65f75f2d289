#include "data/mapped_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "base/errors.hpp"
#include "index_file.hpp"

namespace switchyard::data {
namespace {

std::string text_of(const MappedFile& file) { return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}; }

TEST(MappedFile, HoldsTheBytesOfTheFileAndMoves) {
  const TestFolder folder("mapped");
  write_file(folder.path() / "a", "hello");
  write_file(folder.path() / "b", "");
  MappedFile a(folder.path() / "a"), b(folder.path() / "b");
  EXPECT_EQ(text_of(a), "hello");
  EXPECT_EQ(text_of(b), "");
  b = std::move(a);
  const MappedFile c(std::move(b));
  EXPECT_EQ(text_of(c), "hello");
}

TEST(MappedFile, AMissingFileOrAFolderIsRefused) {
  const TestFolder folder("mapped");
  EXPECT_THAT([&] { MappedFile(folder.path() / "none"); },
              testing::ThrowsMessage<UserError>(testing::HasSubstr("none: No such file or directory. Give the folder that")));
  EXPECT_THAT([&] { MappedFile(folder.path()); }, testing::ThrowsMessage<UserError>(testing::HasSubstr("not a plain file")));
}

}  // namespace
}  // namespace switchyard::data
