#include "files/tensorboard.hpp"

#include <gmock/gmock.h>

#include "base/errors.hpp"
#include "files/crc32c.hpp"
#include "files/disk.hpp"
#include "full_disk.hpp"
#include "scratch.hpp"

namespace switchyard::files {
namespace {

std::string seen(const std::filesystem::path& folder) {
  return output_of(python() + " " SWITCHYARD_SOURCE "/tests/files/read_events.py " + folder.string() + " 2>/dev/null");
}

TEST(TfRecord, frames_a_payload_by_its_length_and_two_checksums) {
  const std::string record = tf_record("abc");
  ASSERT_EQ(record.size(), 8u + 4 + 3 + 4);
  const std::string length("\x03\0\0\0\0\0\0\0", 8);
  const auto word = [](std::uint32_t value) {
    return std::string{static_cast<char>(value), static_cast<char>(value >> 8), static_cast<char>(value >> 16),
                       static_cast<char>(value >> 24)};
  };
  EXPECT_EQ(record, length + word(masked_crc32c(length)) + "abc" + word(masked_crc32c("abc")));
}

TEST(EventWriter, starts_with_the_file_version_and_grows_with_every_call) {
  const Scratch scratch;
  EventWriter writer = EventWriter::create(scratch / "tb");
  EXPECT_THAT(writer.path().filename().string(), testing::StartsWith("events.out.tfevents."));
  const std::string before = get(writer.path());
  EXPECT_THAT(before, testing::HasSubstr("brain.Event:2"));
  writer.add(1, {{"loss", 2.0}}, 1.0);
  // record (16) with wall time 9, step 2, summary 2 + value 2 + tag 2 + 4 + simple_value 5
  EXPECT_EQ(get(writer.path()).size(), before.size() + 16 + 9 + 2 + 2 + 2 + 6 + 5);
}

TEST(EventWriter, is_read_by_tensorboard) {
  if (!std::filesystem::exists(python())) GTEST_SKIP() << "no Python environment";
  const Scratch scratch;
  EventWriter writer = EventWriter::create(scratch.path());
  writer.add(1, {{"train/loss", 2.5}, {"train/lr", 0.125}}, 1000.5);
  writer.add(300, {{"train/loss", -0.75}}, 2000.25);
  EXPECT_EQ(seen(scratch.path()),
            "train/loss 1 2.5 1000.5\ntrain/loss 300 -0.75 2000.25\ntrain/lr 1 0.125 1000.5\nexit 0\n");
}

TEST(EventWriter, makes_viewers_forget_the_steps_that_a_resumed_run_repeats) {
  if (!std::filesystem::exists(python())) GTEST_SKIP() << "no Python environment";
  const Scratch scratch;
  EventWriter first = EventWriter::create(scratch.path());
  for (const i64 step : {1, 2, 3}) first.add(step, {{"loss", static_cast<double>(step)}}, 10);
  EventWriter second = EventWriter::create(scratch.path(), 2);
  second.add(2, {{"loss", 20}}, 20);
  EXPECT_EQ(seen(scratch.path()), "loss 1 1.0 10.0\nloss 2 20.0 20.0\nexit 0\n");
}

TEST(EventWriter, comes_after_the_files_that_are_there_where_the_clock_was_set_back) {
  const Scratch scratch;
  const std::string latest = "events.out.tfevents.9999999998.999999.host.1";
  write_text(scratch / latest, "");
  write_text(scratch / "events.out.tfevents.of-another-program", "");
  const std::string name = EventWriter::create(scratch.path()).path().filename().string();
  EXPECT_EQ(name.substr(0, latest.find(".host")), "events.out.tfevents.9999999999.000000");
}

TEST(EventWriter, names_the_file_when_the_disk_is_full) {
  const Scratch scratch;
  EventWriter writer = EventWriter::create(scratch.path());
  const FileSizeLimit limit(static_cast<long>(std::filesystem::file_size(writer.path())));
  EXPECT_THAT(message_of<ClusterError>([&] {
                writer.add(1, {{"loss", 2.0}});
              }),
              testing::HasSubstr("cannot write " + writer.path().string()));
}

}  // namespace
}  // namespace switchyard::files
