#include "base/mapped_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "../data/index_file.hpp"
#include "../scratch.hpp"
#include "base/errors.hpp"

namespace switchyard {
namespace {

using data::write_file;

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFile, HoldsTheBytesOfTheFileAndMoves) {
  const Scratch folder;
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
  const Scratch folder;
  EXPECT_THAT([&] { MappedFile(folder.path() / "none", "Give another."); },
              testing::ThrowsMessage<UserError>("cannot read " + (folder.path() / "none").string() +
                                                ": No such file or directory. Give another."));
  EXPECT_THAT([&] { MappedFile{folder.path()}; },
              testing::ThrowsMessage<UserError>("cannot read " + folder.path().string() +
                                                ": it is not a file. Check the path and its permissions."));
}

TEST(MappedFile, ThatIsCutOffWhileItIsInUseIsNamedWhenTheProcessEnds) {
  const Scratch folder;
  const auto path = folder.path() / "a";
  write_file(path, std::string(100, 'x'));
  const auto read_what_is_gone = [&] {
    tell_of_unreadable_pages("switchyard, rank 1", 3);
    const MappedFile file(path);
    std::filesystem::resize_file(path, 0);
    std::exit(text_of(file).empty());
  };
  EXPECT_EXIT(read_what_is_gone(), testing::ExitedWithCode(3),
              "^switchyard, rank 1: cannot read " + path.string() + " any more: it became shorter");
}

}  // namespace
}  // namespace switchyard
