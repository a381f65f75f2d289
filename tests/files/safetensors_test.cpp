#include "files/safetensors.hpp"

#include <gmock/gmock.h>

#include <cstdint>

#include "base/errors.hpp"
#include "scratch.hpp"

namespace switchyard::files {
namespace {

using testing::HasSubstr;

/// A file with this header text and so many data bytes.
std::string file_with(const std::string& header, size_t data_bytes) {
  std::string file;
  for (size_t i = 0; i < 8; ++i) file += static_cast<char>((header.size() >> (8 * i)) & 0xff);
  return file + header + std::string(data_bytes, '\x01');
}

TensorHeader parse(const std::string& file) {
  return parse_header(std::as_bytes(std::span(file)), static_cast<i64>(file.size()), "w.safetensors");
}

std::string refusal(const std::string& header, size_t data_bytes) {
  return message_of<UserError>([&] { parse(file_with(header, data_bytes)); });
}

TEST(ParseHeader, reads_types_shapes_places_and_metadata) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},)"
      R"("a":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
      R"("none":{"dtype":"I32","shape":[0,4],"data_offsets":[8,8]}})";
  const TensorHeader parsed = parse(file_with(header, 20));
  const i64 begin = 8 + static_cast<i64>(header.size());
  EXPECT_EQ(parsed.metadata.at("format"), "pt");
  EXPECT_EQ(parsed.tensors.size(), 3u);
  EXPECT_EQ(parsed.tensors.at("b").dtype, FileDType::bf16);
  EXPECT_EQ(parsed.tensors.at("b").shape, (std::vector<i64>{2, 3}));
  EXPECT_EQ(parsed.tensors.at("b").begin, begin + 8);
  EXPECT_EQ(parsed.tensors.at("b").end, begin + 20);
  EXPECT_EQ(parsed.tensors.at("a").elements(), 1);
  EXPECT_EQ(parsed.tensors.at("none").elements(), 0);
}

TEST(ParseHeader, refuses_a_file_that_is_too_short_or_no_safetensors_file) {
  EXPECT_EQ(message_of<UserError>([] { parse("1234567"); }),
            "w.safetensors: 7 bytes are too few for a safetensors file. The file is damaged or not complete: copy or "
            "download it again.");
  EXPECT_THAT(
      message_of<UserError>([] { parse("\xff\xff\xff\xff\xff\xff\xff\xff{}"); }),
      HasSubstr(
          "the header's length is 18446744073709551615 bytes, at most 2 are possible. Is it a safetensors file?"));
  EXPECT_THAT(message_of<UserError>([] { parse(std::string("\x03\0\0\0\0\0\0\0{}", 10)); }),
              HasSubstr("length is 3 bytes, at most 2"));
}

TEST(ParseHeader, refuses_what_is_not_a_json_object) {
  for (const char* header : {"{", "[]", "3", "\xff", "{} {}", ""})
    EXPECT_THAT(refusal(header, 0), HasSubstr("is not a JSON object")) << header;
}

TEST(ParseHeader, names_the_tensor_whose_entry_is_malformed) {
  const std::string needs =
      R"(w.safetensors: tensor "x" needs a "dtype" (text), a "shape" and two "data_offsets" (whole numbers).)";
  for (const char* entry :
       {R"(3)", R"({})", R"({"dtype":3,"shape":[1],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})", R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[1.5],"data_offsets":[0,4]})", R"({"dtype":"F32","shape":[1],"data_offsets":[0]})",
        R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":["1"],"data_offsets":[0,4]})"}) {
    EXPECT_THAT(refusal(std::string(R"({"x":)") + entry + "}", 4), HasSubstr(needs)) << entry;
  }
}

TEST(ParseHeader, names_an_unknown_dtype_and_the_known_ones) {
  EXPECT_THAT(
      refusal(R"({"x":{"dtype":"F4","shape":[8],"data_offsets":[0,4]}})", 4),
      HasSubstr(R"(tensor "x" has dtype "F4". Supported are F64, F32, BF16, F16, I64 and I32: convert the file.)"));
}

TEST(ParseHeader, accepts_types_of_tensors_that_are_not_read) {
  const TensorHeader parsed = parse(file_with(R"({"mask":{"dtype":"BOOL","shape":[1,3],"data_offsets":[0,3]},)"
                                              R"("x":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[3,7]}})",
                                              7));
  EXPECT_EQ(parsed.tensors.at("mask").elements(), 3);
  EXPECT_EQ(name_of(parsed.tensors.at("x").dtype), "F8_E4M3");
}

TEST(ParseHeader, knows_a_pointer_of_git_lfs) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 16060522904\n";
  EXPECT_EQ(message_of<UserError>([&] { parse(pointer); }),
            "w.safetensors: it is only a pointer to the file, by Git LFS. Fetch the file with git lfs pull.");
}

TEST(ParseHeader, refuses_a_shape_that_does_not_fit_its_bytes) {
  EXPECT_THAT(refusal(R"({"x":{"dtype":"F32","shape":[2,2],"data_offsets":[0,12]}})", 12),
              HasSubstr(R"(tensor "x": data_offsets [0, 12] do not fit shape [2, 2] of F32.)"));
  EXPECT_THAT(refusal(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}})", 8), HasSubstr("do not fit"));
  // The product overflows to 4 bytes.
  EXPECT_THAT(refusal(R"({"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
              HasSubstr("do not fit"));
}

TEST(ParseHeader, refuses_overlaps_holes_and_bytes_at_the_end) {
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                      12),
              HasSubstr(R"(tensor "b" starts at data byte 4, the tensor before it ends at 8: they overlap.)"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                      R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                      12),
              HasSubstr("there is a hole"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 7),
              HasSubstr("3 bytes follow the last tensor"));
}

TEST(ParseHeader, says_that_a_file_was_cut_off) {
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", 9),
              HasSubstr(R"(tensor "a" ends at data byte 16, the file at 9: it was cut off.)"));
}

TEST(ParseHeader, refuses_metadata_that_is_no_text) {
  EXPECT_THAT(refusal(R"({"__metadata__":{"step":3}})", 0),
              HasSubstr(R"("__metadata__" must be an object of strings; "step" is not a string.)"));
  EXPECT_THAT(refusal(R"({"__metadata__":[]})", 0), HasSubstr(R"("__metadata__" must be an object of strings.)"));
}

TEST(TensorFile, reads_every_fixture) {
  size_t tensors = 0;
  for (const auto& folder : std::filesystem::directory_iterator(SWITCHYARD_FIXTURES)) {
    if (!folder.is_directory()) continue;
    for (const char* name : {"model.safetensors", "input.safetensors", "expected.safetensors"}) {
      const TensorFile file = TensorFile::open(folder.path() / name);
      for (const std::string& tensor : file.names()) {
        EXPECT_EQ(static_cast<i64>(file.data(tensor).size()),
                  file.info(tensor).elements() * size_of(file.info(tensor).dtype));
      }
      tensors += file.names().size();
    }
  }
  EXPECT_GT(tensors, 300u);
}

TEST(TensorFile, gives_the_values_of_a_fixture) {
  const TensorFile file = TensorFile::open(std::filesystem::path(SWITCHYARD_FIXTURES) / "llama-gqa/input.safetensors");
  const auto lengths = values_of<std::int64_t>(file.data("doc_lengths"));
  const auto tokens = values_of<std::int64_t>(file.data("tokens"));
  ASSERT_EQ(lengths.size(), 8u);
  std::int64_t sum = 0;
  for (const auto length : lengths) sum += length;
  EXPECT_EQ(sum, static_cast<std::int64_t>(tokens.size()));
  for (const auto token : tokens) EXPECT_TRUE(0 <= token && token < 131);
}

TEST(TensorFile, names_a_missing_file_and_a_missing_tensor) {
  const Scratch scratch;
  EXPECT_THAT(message_of<UserError>([&] { TensorFile::open(scratch / "none"); }),
              HasSubstr("cannot read " + (scratch / "none").string()));
  put(scratch / "a", file_with(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4));
  const TensorFile file = TensorFile::open(scratch / "a");
  EXPECT_TRUE(file.contains("a"));
  EXPECT_FALSE(file.contains("b"));
  EXPECT_EQ(message_of<UserError>([&] { file.data("b"); }),
            (scratch / "a").string() + ": there is no tensor \"b\" among its 1. Is it the file of another model?");
}

class Folder : public testing::Test {
 protected:
  void shard(const std::string& file, const std::string& tensor) {
    put(scratch_ / file, file_with(R"({")" + tensor + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4));
  }
  void index(const std::string& map) {
    put(scratch_ / "model.safetensors.index.json", R"({"metadata":{},"weight_map":)" + map + "}");
  }
  std::string refusal() {
    return message_of<UserError>([&] { TensorFolder::open(scratch_.path()); });
  }
  Scratch scratch_;
};

TEST_F(Folder, reads_a_single_file) {
  shard("model.safetensors", "a");
  const TensorFolder folder = TensorFolder::open(scratch_.path());
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"a"}));
  EXPECT_EQ(folder.data("a").size(), 4u);
}

TEST_F(Folder, reads_shards_by_their_index) {
  shard("model-00001-of-00002.safetensors", "a");
  shard("model-00002-of-00002.safetensors", "b");
  index(R"({"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"})");
  const TensorFolder folder = TensorFolder::open(scratch_.path());
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(folder.info("b").shape, std::vector<i64>{1});
  EXPECT_TRUE(folder.contains("a"));
  EXPECT_THAT(message_of<UserError>([&] { folder.info("c"); }),
              HasSubstr("there is no tensor \"c\" among its 2. Does config.json describe"));
}

TEST_F(Folder, names_a_missing_shard) {
  shard("one", "a");
  index(R"({"a":"one","b":"two"})");
  EXPECT_THAT(
      refusal(),
      HasSubstr("shard two, which model.safetensors.index.json names for \"b\", is missing. Copy or download it."));
}

TEST_F(Folder, names_a_tensor_that_its_shard_lacks) {
  shard("one", "a");
  index(R"({"a":"one","b":"one"})");
  EXPECT_THAT(refusal(), HasSubstr((scratch_ / "one").string() + ": there is no tensor \"b\""));
}

TEST_F(Folder, refuses_a_damaged_index_and_paths_in_it) {
  put(scratch_ / "model.safetensors.index.json", "{");
  EXPECT_THAT(refusal(), HasSubstr("it must be a JSON object with a \"weight_map\""));
  index(R"({"a":"../one"})");
  EXPECT_THAT(refusal(), HasSubstr("tensor \"a\" must name a file of the same folder"));
  index(R"({"a":7})");
  EXPECT_THAT(refusal(), HasSubstr("tensor \"a\" must name a file of the same folder"));
}

TEST_F(Folder, says_what_an_empty_folder_lacks) {
  EXPECT_THAT(refusal(), HasSubstr("neither model.safetensors nor model.safetensors.index.json is there"));
  for (const char* name : {"pytorch_model.bin.index.json", "pytorch_model.bin"}) {
    put(scratch_ / name, "");
    EXPECT_THAT(refusal(), HasSubstr(std::string(": its weights are in ") + name + ", and not in safetensors. Write"));
  }
}

}  // namespace
}  // namespace switchyard::files
