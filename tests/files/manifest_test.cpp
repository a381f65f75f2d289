#include "files/manifest.hpp"

#include <gmock/gmock.h>

#include "base/errors.hpp"
#include "files/crc32c.hpp"
#include "files/disk.hpp"
#include "files/safetensors.hpp"
#include "files/tensor_writer.hpp"
#include "scratch.hpp"

namespace switchyard::files {
namespace {

using testing::HasSubstr;

/// "w" (4, 6) of one part in four boxes of unequal sizes over two files, "b" () whole.
Manifest sample() {
  return {.dtype = DType::f32,
          .parts = {"m"},
          .shapes = {{"w", {4, 6}}, {"b", {}}},
          .entries = {{"w", "m", {0, 0}, {1, 6}, "one", "w.0"},
                      {"w", "m", {1, 0}, {4, 2}, "one", "w.1"},
                      {"w", "m", {1, 2}, {3, 6}, "two", "w.0"},
                      {"w", "m", {3, 2}, {4, 6}, "two", "w.1"},
                      {"w", "m", {4, 0}, {4, 6}, "two", "w.2"},
                      {"b", "m", {}, {}, "two", "b"}}};
}

std::string refusal(const Manifest& manifest) {
  return message_of<UserError>([&] { validate(manifest, "manifest.json"); });
}

TEST(Manifest, is_read_as_it_was_written) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "state");
  write_manifest(scratch.path(), sample());
  EXPECT_EQ(read_manifest(scratch.path()), sample());
}

TEST(Manifest, residuals_of_several_ranks_may_overlap_and_leave_elements_out) {
  Manifest manifest = sample();
  manifest.residuals = {{0, {"w", "residual", {0, 0}, {3, 6}, "one", "r.0"}},
                        {5, {"w", "residual", {1, 2}, {4, 6}, "two", "r.0"}}};
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "state");
  write_manifest(scratch.path(), manifest);
  EXPECT_EQ(read_manifest(scratch.path()), manifest);
  manifest.residuals[1].entry.hi[0] = 5;
  EXPECT_THAT(refusal(manifest),
              HasSubstr("\"residual\" of \"w\": box from [1, 2] to [5, 6] does not lie in shape [4, 6]."));
  manifest.residuals[1].entry.part = "m";
  EXPECT_THAT(refusal(manifest), HasSubstr("an entry for \"m\" of \"w\", which is not a part or tensor"));
}

TEST(Manifest, accepts_uneven_boxes_that_cover_each_element_once) {
  EXPECT_NO_THROW(validate(sample(), "manifest.json"));
}

TEST(Manifest, names_overlapping_boxes_and_their_files) {
  Manifest manifest = sample();
  manifest.entries[2].lo[1] = 1;
  EXPECT_EQ(refusal(manifest),
            "manifest.json: \"m\" of \"w\": boxes [1:4, 0:2] in one and [1:3, 1:6] in two overlap. The checkpoint is "
            "damaged: resume from "
            "another one.");
}

TEST(Manifest, counts_elements_that_no_box_holds) {
  Manifest manifest = sample();
  manifest.entries.erase(manifest.entries.begin() + 3);
  EXPECT_THAT(refusal(manifest), HasSubstr("\"m\" of \"w\": 4 of 24 elements are in no box."));
  manifest = sample();
  manifest.entries.pop_back();
  EXPECT_THAT(refusal(manifest), HasSubstr("\"m\" of \"b\": 1 of 1 elements are in no box."));
  manifest = sample();
  manifest.parts.push_back("v");
  EXPECT_THAT(refusal(manifest), HasSubstr("\"v\" of \"b\": 1 of 1 elements are in no box."));
}

TEST(Manifest, refuses_boxes_outside_their_tensor) {
  for (const auto& [lo, hi] :
       std::vector<std::pair<std::vector<i64>, std::vector<i64>>>{{{0, 0}, {5, 6}},
                                                                  {{-1, 0}, {1, 6}},
                                                                  {{2, 0}, {1, 6}},
                                                                  {{0}, {4}},
                                                                  {{0, 0}, {4}},
                                                                  {{0, 0}, {INT64_MAX, INT64_MAX}}}) {
    Manifest manifest = sample();
    manifest.entries[0].lo = lo;
    manifest.entries[0].hi = hi;
    EXPECT_THAT(refusal(manifest), HasSubstr("does not lie in shape [4, 6]"));
  }
}

TEST(Manifest, refuses_unknown_tensors_parts_and_paths) {
  Manifest manifest = sample();
  manifest.entries[0].tensor = "x";
  EXPECT_THAT(refusal(manifest),
              HasSubstr("an entry for \"m\" of \"x\", which is not a part or tensor of this checkpoint"));
  manifest = sample();
  manifest.entries[0].part = "z";
  EXPECT_THAT(refusal(manifest), HasSubstr("an entry for \"z\" of \"w\""));
  manifest = sample();
  manifest.entries[0].file = "../one";
  EXPECT_THAT(refusal(manifest), HasSubstr("\"../one\" is not a file name."));
}

TEST(Manifest, names_the_file_that_is_not_json_or_lacks_a_key) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "state");
  const std::string path = (scratch / "state/manifest.json").string();
  EXPECT_THAT(message_of<UserError>([&] { read_manifest(scratch.path()); }), HasSubstr("cannot read " + path));
  put(path, "{\"dtype\":");
  EXPECT_THAT(message_of<UserError>([&] { read_manifest(scratch.path()); }), testing::StartsWith(path));
  put(path, R"({"dtype":"f32","parts":[],"shapes":{}})");
  EXPECT_THAT(message_of<UserError>([&] { read_manifest(scratch.path()); }), HasSubstr("key 'entries' not found"));
  put(path, R"({"dtype":"f8","parts":[],"shapes":{},"entries":[]})");
  EXPECT_THAT(message_of<UserError>([&] { read_manifest(scratch.path()); }), HasSubstr("dtype \"f8\" is unknown"));
}

TEST(Manifest, calls_shards_by_rank_and_number_of_ranks) {
  EXPECT_EQ(shard_name(3, 8), "home-00003-of-00008.safetensors");
}

class Shards : public testing::Test {
 protected:
  Shards() {
    std::filesystem::create_directory(scratch_ / "state");
    write("one", {{"w.0", DType::f32, {1, 6}}, {"w.1", DType::f32, {3, 2}}});
    write(
        "two",
        {{"w.0", DType::f32, {2, 4}}, {"w.1", DType::f32, {1, 4}}, {"w.2", DType::f32, {0, 6}}, {"b", DType::f32, {}}});
  }
  void write(const std::string& file, const std::vector<TensorEntry>& entries) {
    TensorWriter::create(scratch_ / ("state/" + file), entries).finish();
  }
  std::string refusal() {
    return message_of<UserError>([&] { validate_shards(scratch_.path(), sample()); });
  }
  Scratch scratch_;
};

TEST_F(Shards, agree_with_their_manifest) { EXPECT_NO_THROW(validate_shards(scratch_.path(), sample())); }

TEST_F(Shards, are_named_when_missing) {
  std::filesystem::remove(scratch_ / "state/two");
  EXPECT_THAT(refusal(), HasSubstr((scratch_ / "state/two").string() +
                                   " is missing, which the manifest names. If ranks run on several hosts"));
}

TEST_F(Shards, are_named_when_cut_off) {
  std::filesystem::resize_file(scratch_ / "state/two", std::filesystem::file_size(scratch_ / "state/two") - 1);
  EXPECT_THAT(refusal(), HasSubstr((scratch_ / "state/two").string() + ": tensor \""));
}

TEST_F(Shards, with_another_byte_than_was_written_are_named_with_the_tensor) {
  const std::filesystem::path path = scratch_ / "state/one";
  const std::string whole = read_text(path);
  EXPECT_NO_THROW(verify_checksums(scratch_.path(), "one")) << "an earlier version wrote none";
  const TensorFile file = TensorFile::open(path);
  write_checksums(scratch_.path(), "one", {{"w.0", crc32c(file.data("w.0"))}, {"w.1", crc32c(file.data("w.1"))}});
  EXPECT_NO_THROW(verify_checksums(scratch_.path(), "one"));
  std::string text = whole;
  text.back() ^= 1;
  write_text(path, text);
  const std::string refusal = message_of<UserError>([&] { verify_checksums(scratch_.path(), "one"); });
  EXPECT_EQ(refusal, path.string() + " is damaged: the checksum of \"w.1\" differs.");
}

TEST_F(Shards, must_have_the_keys_shapes_and_types_of_the_manifest) {
  write("one", {{"w.0", DType::f32, {1, 6}}});
  EXPECT_THAT(refusal(), HasSubstr("there is no tensor \"w.1\""));
  write("one", {{"w.0", DType::f32, {1, 6}}, {"w.1", DType::f32, {2, 3}}});
  EXPECT_THAT(refusal(), HasSubstr("tensor \"w.1\" is F32 [2, 3], the manifest says F32 [3, 2]."));
  write("one", {{"w.0", DType::f32, {1, 6}}, {"w.1", DType::f64, {3, 2}}});
  EXPECT_THAT(refusal(), HasSubstr("tensor \"w.1\" is F64 [3, 2], the manifest says F32 [3, 2]."));
}

}  // namespace
}  // namespace switchyard::files
