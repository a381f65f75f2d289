#include "files/disk.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "base/errors.hpp"
#include "full_disk.hpp"
#include "scratch.hpp"

namespace switchyard::files {
namespace {

using testing::HasSubstr;

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Disk, replaces_a_text_in_one_motion) {
  const Scratch scratch;
  write_text(scratch / "a.txt", "old");
  write_text(scratch / "a.txt", "new");
  EXPECT_EQ(read_text(scratch / "a.txt"), "new");
  EXPECT_FALSE(std::filesystem::exists(scratch / "a.txt.tmp"));
}

TEST(Disk, keeps_the_old_text_when_the_disk_is_full) {
  const Scratch scratch;
  write_text(scratch / "a.txt", "old");
  const FileSizeLimit limit(10);
  const std::string message = message_of<ClusterError>([&] { write_text(scratch / "a.txt", std::string(100, 'x')); });
  EXPECT_THAT(message, HasSubstr("cannot write " + (scratch / "a.txt").string()));
  EXPECT_THAT(message, HasSubstr("100 bytes are needed"));
  EXPECT_EQ(read_text(scratch / "a.txt"), "old");
  EXPECT_FALSE(std::filesystem::exists(scratch / "a.txt.tmp"));
}

TEST(Disk, says_how_much_is_needed_and_free_when_a_device_is_full) {
  const Descriptor full = open_for_writing("/dev/full");
  const std::string message =
      message_of<ClusterError>([&] { write_all(full, bytes("abc"), -1, "/tmp/weights", 12345); });
  EXPECT_THAT(message, HasSubstr("cannot write /tmp/weights: No space left on device. 12345 bytes are needed, "));
  EXPECT_THAT(message, testing::Not(HasSubstr("needed, 0 are free")));
  EXPECT_THAT(message, HasSubstr("Free some space"));
}

TEST(Disk, names_the_folder_to_look_at_for_other_failures) {
  const std::string message = message_of<ClusterError>([] { open_for_writing("/proc/there/is/none"); });
  EXPECT_EQ(message,
            "cannot open /proc/there/is/none: No such file or directory. Check the disk and the permissions of "
            "/proc/there/is.");
}

TEST(Disk, names_a_file_that_cannot_be_read) {
  const Scratch scratch;
  EXPECT_EQ(message_of<UserError>([&] { read_text(scratch / "none"); }),
            "cannot read " + (scratch / "none").string() +
                ": No such file or directory. Check the path and its permissions.");
  EXPECT_EQ(message_of<UserError>([&] { read_text(scratch.path()); }),
            "cannot read " + scratch.path().string() + ": it is not a file. Check the path and its permissions.");
}

TEST(Disk, writes_at_offsets_and_at_the_end) {
  const Scratch scratch;
  {
    const Descriptor file = open_for_writing(scratch / "a");
    write_all(file, bytes("world"), 3, scratch / "a", 8);
    write_all(file, bytes("or "), 0, scratch / "a", 8);
    sync(file, scratch / "a");
  }
  write_all(open_for_appending(scratch / "a"), bytes("!"), -1, scratch / "a", 1);
  EXPECT_EQ(get(scratch / "a"), "or world!");
}

TEST(Disk, makes_a_folder_with_its_parents_and_says_why_it_cannot) {
  const Scratch scratch;
  make_folder(scratch / "a/b/c");
  make_folder(scratch / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_directory(scratch / "a/b/c"));
  put(scratch / "file", "");
  for (const char* name : {"file", "file/below"})
    EXPECT_EQ(message_of<UserError>([&] { make_folder(scratch / name); }),
              fmt::format("cannot make folder {}: {} is not a folder. Name another path, or move that file away.",
                          (scratch / name).string(), (scratch / "file").string()));
  std::filesystem::create_symlink("nowhere", scratch / "link");
  EXPECT_THAT(message_of<UserError>([&] { make_folder(scratch / "link"); }), HasSubstr("link is not a folder. Name"));
  EXPECT_THAT(message_of<UserError>([&] { make_folder(scratch / std::string(300, 'x')); }),
              HasSubstr("File name too long. Name another path."));
}

TEST(Disk, a_path_that_cannot_be_a_file_is_the_users_mistake_and_leaves_nothing) {
  const Scratch scratch;
  make_folder(scratch / "page");
  EXPECT_EQ(message_of<UserError>([&] { write_text(scratch / "page", "x"); }),
            fmt::format("cannot rename to {}: it is a folder. Name a file, or move the folder away.",
                        (scratch / "page").string()));
  EXPECT_FALSE(std::filesystem::exists(scratch / "page.tmp"));
  EXPECT_THAT(message_of<UserError>([&] { open_for_writing(scratch / "page"); }), HasSubstr("cannot open "));
}

TEST(Disk, says_what_to_raise_when_too_many_files_are_open) {
  const Scratch scratch;
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  const std::string message = message_of<ClusterError>([&] { open_for_writing(scratch / "file"); });
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(message, fmt::format("cannot open {}: Too many open files. Raise the limit of open files (ulimit -n).",
                                 (scratch / "file").string()));
}

TEST(Disk, the_folder_of_a_name_alone_is_the_current_one) {
  EXPECT_EQ(message_of<ClusterError>([] { disk_error("write", "out", EIO); }),
            "cannot write out: Input/output error. Check the disk and the permissions of the current folder.");
}

TEST(Disk, writes_a_text_where_a_link_leads) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "elsewhere");
  put(scratch / "elsewhere/a.txt", "old");
  std::filesystem::create_symlink("elsewhere/a.txt", scratch / "a.txt");
  write_text(scratch / "a.txt", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(scratch / "a.txt"));
  EXPECT_EQ(get(scratch / "elsewhere/a.txt"), "new");
}

TEST(Disk, a_text_goes_into_a_pipe_that_stays_one) {
  const Scratch scratch;
  const auto pipe = scratch / "pipe", link = scratch / "link";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink(pipe, link);
  const Descriptor reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK));
  for (const auto& name : {pipe, link}) {
    write_text(name, "text");
    std::array<char, 10> got{};
    EXPECT_EQ(::read(reader.get(), got.data(), got.size()), 4);
    EXPECT_EQ(std::string(got.data()), "text");
    EXPECT_TRUE(std::filesystem::is_fifo(name));
  }
}

TEST(Disk, what_the_standard_library_throws_for_a_path_names_the_remedy) {
  const Scratch scratch;
  std::filesystem::create_symlink("loop", scratch / "loop");
  const std::string path = (scratch / "loop/COMMITTED").string();
  EXPECT_EQ(message_of<UserError>([&] { with_disk_errors([&] { static_cast<void>(std::filesystem::exists(path)); }); }),
            "cannot read " + path + ": Too many levels of symbolic links. Name another path.");
}

}  // namespace
}  // namespace switchyard::files
