#include "files/json_lines.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/errors.hpp"
#include "full_disk.hpp"
#include "scratch.hpp"

namespace switchyard::files {
namespace {

TEST(JsonLines, has_each_line_in_the_file_at_once_and_in_order_of_keys) {
  const Scratch scratch;
  JsonLines log = JsonLines::open(scratch / "run", 0);
  log.append({{"step", 1}, {"loss", 2.5}, {"a", "x\ny"}});
  EXPECT_EQ(get(scratch / "run/log.jsonl"), "{\"step\":1,\"loss\":2.5,\"a\":\"x\\ny\"}\n");
  log.append({{"step", 2}, {"loss", NAN}});
  EXPECT_EQ(get(log.path()), "{\"step\":1,\"loss\":2.5,\"a\":\"x\\ny\"}\n{\"step\":2,\"loss\":null}\n");
}

TEST(JsonLines, goes_on_after_what_is_there_and_drops_half_a_line) {
  const Scratch scratch;
  put(scratch / "log.jsonl", "{\"step\":1}\n{\"note\":\"x\"}\nnonsense\n{\"step\":2,\"lo");
  JsonLines::open(scratch.path(), 1).append({{"step", 2}});
  EXPECT_EQ(get(scratch / "log.jsonl"), "{\"step\":1}\n{\"note\":\"x\"}\n{\"step\":2}\n");
}

TEST(JsonLines, drops_the_steps_after_the_resumed_one) {
  const Scratch scratch;
  put(scratch / "log.jsonl", "{\"step\":1}\n{\"event\":\"resumed\"}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4.5}\n");
  JsonLines log = JsonLines::open(scratch.path(), 2);
  EXPECT_EQ(get(log.path()), "{\"step\":1}\n{\"event\":\"resumed\"}\n{\"step\":2}\n{\"step\":4.5}\n");
  log.append({{"step", 3}});
  EXPECT_THAT(get(log.path()), testing::EndsWith("{\"step\":3}\n"));
}

TEST(JsonLines, replaces_bytes_that_are_no_utf_8) {
  const Scratch scratch;
  JsonLines log = JsonLines::open(scratch.path(), 0);
  log.append({{"text", "a\xff"}});
  EXPECT_EQ(get(log.path()), "{\"text\":\"a\xef\xbf\xbd\"}\n");
}

TEST(JsonLines, names_the_log_when_the_disk_is_full) {
  const Scratch scratch;
  JsonLines log = JsonLines::open(scratch.path(), 0);
  const FileSizeLimit limit(5);
  EXPECT_THAT(message_of<ClusterError>([&] {
                log.append({{"step", 100000}});
              }),
              testing::HasSubstr("cannot write " + log.path().string()));
}

}  // namespace
}  // namespace switchyard::files
