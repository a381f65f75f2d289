#include "files/tensor_writer.hpp"

#include <gmock/gmock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <numeric>
#include <thread>

#include "base/errors.hpp"
#include "full_disk.hpp"
#include "scratch.hpp"

namespace {
int interruptions = 0;  // interruptions of the next calls
}

// In place of the system's: on tmpfs signals interrupt it, at moments that no test can choose.
extern "C" int fallocate(int file, int mode, off_t offset, off_t size) {
  if (interruptions == 0) return static_cast<int>(::syscall(SYS_fallocate, file, mode, offset, size));
  --interruptions;
  errno = EINTR;
  return -1;
}

namespace switchyard::files {
namespace {

using testing::HasSubstr;

std::vector<float> rising(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

size_t files_in(const std::filesystem::path& folder) {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

TEST(TensorWriter, writes_what_the_reader_reads) {
  const Scratch scratch;
  const auto path = scratch / "a.safetensors";
  TensorWriter writer = TensorWriter::create(
      path,
      {{"half", DType::bf16, {3}}, {"x", DType::f32, {2, 3}}, {"count", DType::i64, {}}, {"none", DType::f32, {0, 5}}},
      {{"format", "pt"}});
  const std::vector<float> x = rising(6);
  writer.write("x", 8, raw_bytes(x).subspan(8));
  writer.write("x", 0, raw_bytes(x).first(8));
  writer.write("count", 0, raw_bytes(std::vector<std::int64_t>{42}));
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.finish();
  const TensorFile file = TensorFile::open(path);
  EXPECT_EQ(file.names(), (std::vector<std::string>{"count", "half", "none", "x"}));
  EXPECT_EQ(values_of<float>(file.data("x")), x);
  EXPECT_EQ(values_of<std::int64_t>(file.data("count")), std::vector<std::int64_t>{42});
  EXPECT_EQ(values_of<std::uint16_t>(file.data("half")), (std::vector<std::uint16_t>{0, 0, 0}));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  for (const std::string& name : file.names())
    EXPECT_EQ(file.info(name).begin % size_of(file.info(name).dtype), 0) << name;
  EXPECT_EQ(files_in(scratch.path()), 1u);
}

TEST(TensorFolderWriter, several_write_into_the_files_that_one_has_made) {
  const Scratch scratch;
  const std::vector<TensorEntry> entries{{"x", DType::f32, {2, 3}}, {"y", DType::f32, {2}}};
  const std::vector<float> x = rising(6), y{7, 8};
  TensorFolderWriter creator = TensorFolderWriter::create(scratch.path(), entries, 24);
  for (const i64 column : {0, 1, 2}) {
    TensorFolderWriter other = TensorFolderWriter::join(scratch.path(), entries, 24);
    const std::vector<i64> lo{0, column}, hi{2, column + 1};
    const auto at = static_cast<size_t>(column);
    other.write_box("x", lo, hi, raw_bytes(std::vector<float>{x[at], x[at + 3]}));
    if (column == 2) other.write("y", 0, raw_bytes(y));
    other.finish();
    EXPECT_FALSE(std::filesystem::exists(scratch / "model-00001-of-00002.safetensors")) << "the creator names it";
  }
  { const TensorFolderWriter failed = TensorFolderWriter::join(scratch.path(), entries, 24); }
  creator.finish();
  const TensorFolder folder = TensorFolder::open(scratch.path());
  EXPECT_EQ(values_of<float>(folder.data("x")), x);
  EXPECT_EQ(values_of<float>(folder.data("y")), y);
  EXPECT_EQ(files_in(scratch.path()), 3u) << "two shards and their index";
}

TEST(TensorWriter, assembles_a_tensor_from_boxes) {
  const Scratch scratch;
  const std::vector<i64> shape{3, 4, 5};
  const std::vector<float> whole = rising(60);
  TensorWriter writer = TensorWriter::create(scratch / "a", {{"x", DType::f32, shape}});
  size_t written = 0;
  for (const auto& [lo0, hi0] : {std::pair<i64, i64>{0, 1}, {1, 3}}) {
    for (const auto& [lo1, hi1] : {std::pair<i64, i64>{0, 4}, {4, 4}}) {
      for (const auto& [lo2, hi2] : {std::pair<i64, i64>{0, 2}, {2, 5}}) {
        std::vector<float> box;
        for (i64 i = lo0; i < hi0; ++i)
          for (i64 j = lo1; j < hi1; ++j)
            for (i64 k = lo2; k < hi2; ++k) box.push_back(whole[static_cast<size_t>((i * 4 + j) * 5 + k)]);
        writer.write_box("x", std::vector<i64>{lo0, lo1, lo2}, std::vector<i64>{hi0, hi1, hi2}, raw_bytes(box));
        written += box.size();
      }
    }
  }
  EXPECT_EQ(written, whole.size());
  writer.finish();
  EXPECT_EQ(values_of<float>(TensorFile::open(scratch / "a").data("x")), whole);
}

TEST(TensorWriter, writes_whole_rows_middle_ranges_and_scalars_as_boxes) {
  const Scratch scratch;
  TensorWriter writer = TensorWriter::create(scratch / "a", {{"x", DType::f32, {4, 3}}, {"s", DType::f32, {}}});
  const std::vector<float> x = rising(12);
  writer.write_box("x", std::vector<i64>{0, 0}, std::vector<i64>{1, 3}, raw_bytes(x).first(12));
  writer.write_box("x", std::vector<i64>{1, 0}, std::vector<i64>{4, 3}, raw_bytes(x).subspan(12));
  writer.write_box("s", {}, {}, raw_bytes(std::vector<float>{7}));
  writer.finish();
  const TensorFile file = TensorFile::open(scratch / "a");
  EXPECT_EQ(values_of<float>(file.data("x")), x);
  EXPECT_EQ(values_of<float>(file.data("s")), std::vector<float>{7});
}

TEST(TensorWriter, takes_pieces_from_several_threads) {
  const Scratch scratch;
  const std::vector<float> x = rising(4096);
  TensorWriter writer = TensorWriter::create(scratch / "a", {{"x", DType::f32, {4096}}});
  std::vector<std::jthread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < 64; i += 4)
        writer.write("x", static_cast<i64>(i * 256), raw_bytes(x).subspan(i * 256, 256));
    });
  }
  threads.clear();
  writer.finish();
  EXPECT_EQ(values_of<float>(TensorFile::open(scratch / "a").data("x")), x);
}

TEST(TensorWriter, refuses_pieces_that_do_not_fit) {
  const Scratch scratch;
  TensorWriter writer = TensorWriter::create(scratch / "a", {{"x", DType::f32, {2, 2}}});
  const std::vector<float> x = rising(4);
  EXPECT_THAT(message_of<InternalError>([&] { writer.write("y", 0, raw_bytes(x)); }),
              HasSubstr("tensor \"y\" was not declared"));
  EXPECT_THAT(message_of<InternalError>([&] { writer.write("x", 4, raw_bytes(x)); }),
              HasSubstr("16 bytes at 4 of \"x\", which has 16"));
  EXPECT_THAT(message_of<InternalError>([&] {
                writer.write_box("x", std::vector<i64>{0, 1}, std::vector<i64>{2, 3}, raw_bytes(x));
              }),
              HasSubstr("16 bytes for box [0, 1] to [2, 3] of \"x\", which has shape [2, 2]"));
  EXPECT_THAT(message_of<InternalError>([&] {
                TensorWriter::create(scratch / "b", {{"x", DType::f32, {1}}, {"x", DType::f32, {1}}});
              }),
              HasSubstr("\"x\" is declared twice"));
}

TEST(TensorWriter, leaves_nothing_when_it_is_not_finished) {
  const Scratch scratch;
  { const TensorWriter writer = TensorWriter::create(scratch / "a", {{"x", DType::f32, {2}}}); }
  EXPECT_EQ(files_in(scratch.path()), 0u);
}

TEST(TensorWriter, keeps_the_file_of_that_name_until_it_is_finished) {
  const Scratch scratch;
  put(scratch / "a", "before");
  TensorWriter writer = TensorWriter::create(scratch / "a", {{"x", DType::f32, {2}}});
  EXPECT_EQ(get(scratch / "a"), "before");
  writer.finish();
  EXPECT_EQ(TensorFile::open(scratch / "a").names(), std::vector<std::string>{"x"});
}

TEST(TensorWriter, says_before_the_first_byte_that_the_disk_is_too_small) {
  const Scratch scratch;
  const SmallDisk disk(scratch / "disk", 64 * 1024);
  if (!disk.mounted()) GTEST_SKIP() << "mounting needs root";
  const auto path = scratch / "disk/a.safetensors";
  const std::string message = message_of<ClusterError>([&] {
    TensorWriter::create(path, {{"x", DType::f32, {100'000}}});
  });
  EXPECT_THAT(message, HasSubstr("cannot write " + path.string() +
                                 ": No space left on device. 400104 bytes are needed, 65536 are free."));
  EXPECT_EQ(files_in(scratch / "disk"), 0u);
}

TEST(TensorWriter, says_that_a_file_may_not_grow_so_large) {
  const Scratch scratch;
  const FileSizeLimit limit(10'000);
  const std::string message = message_of<ClusterError>([&] {
    TensorWriter::create(scratch / "a", {{"x", DType::f32, {100'000}}});
  });
  EXPECT_THAT(message, HasSubstr("File too large"));
  EXPECT_THAT(message, HasSubstr("ulimit -f"));
  EXPECT_EQ(files_in(scratch.path()), 0u);
}

TEST(TensorFolderWriter, writes_one_file_if_it_fits) {
  const Scratch scratch;
  TensorFolderWriter writer =
      TensorFolderWriter::create(scratch / "model", {{"a", DType::f32, {2}}, {"b", DType::f32, {2}}});
  writer.write("b", 0, raw_bytes(std::vector<float>{1, 2}));
  writer.finish();
  EXPECT_EQ(values_of<float>(TensorFolder::open(scratch / "model").data("b")), (std::vector<float>{1, 2}));
  EXPECT_TRUE(std::filesystem::exists(scratch / "model/model.safetensors"));
  EXPECT_EQ(files_in(scratch / "model"), 1u);
}

TEST(TensorFolderWriter, starts_a_shard_where_the_next_tensor_would_not_fit) {
  const Scratch scratch;
  TensorFolderWriter writer = TensorFolderWriter::create(
      scratch.path(), {{"a", DType::f32, {2}}, {"b", DType::f32, {3}}, {"c", DType::f32, {9}}, {"d", DType::f32, {1}}},
      20);
  writer.write_box("c", std::vector<i64>{0}, std::vector<i64>{9}, raw_bytes(rising(9)));
  writer.finish();
  EXPECT_EQ(TensorFile::open(scratch / "model-00001-of-00003.safetensors").names(),
            (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(TensorFile::open(scratch / "model-00002-of-00003.safetensors").names(), (std::vector<std::string>{"c"}));
  const TensorFolder folder = TensorFolder::open(scratch.path());
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_EQ(values_of<float>(folder.data("c")), rising(9));
  EXPECT_THAT(get(scratch / "model.safetensors.index.json"), HasSubstr("\"total_size\": 60"));
}

TEST(TensorFolderWriter, refuses_a_folder_that_holds_weights) {
  const Scratch scratch;
  put(scratch / "model-00001-of-00002.safetensors", "");
  EXPECT_THAT(message_of<UserError>([&] {
                TensorFolderWriter::create(scratch.path(), {{"a", DType::f32, {2}}});
              }),
              HasSubstr("already holds weights (model-00001-of-00002.safetensors). Choose an empty folder."));
}

TEST(TensorFolderWriter, leaves_no_shard_when_the_disk_fills) {
  const Scratch scratch;
  const FileSizeLimit limit(2'000);
  message_of<ClusterError>([&] {
    TensorFolderWriter::create(scratch.path(), {{"a", DType::f32, {100}}, {"b", DType::f32, {1000}}}, 400);
  });
  EXPECT_EQ(files_in(scratch.path()), 0u);
}

TEST(TensorWriter, makes_room_also_where_a_signal_interrupts_it) {
  const Scratch scratch;
  interruptions = 2;
  TensorWriter writer = TensorWriter::create(scratch / "a.safetensors", {{"x", DType::f32, {6}}});
  EXPECT_EQ(interruptions, 0);
  writer.write("x", 0, raw_bytes(rising(6)));
  writer.finish();
  EXPECT_EQ(values_of<float>(TensorFile::open(scratch / "a.safetensors").data("x")), rising(6));
}

}  // namespace
}  // namespace switchyard::files
