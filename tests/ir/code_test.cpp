#include "ir/code.hpp"

#include <gmock/gmock.h>

#include "ir/operators/gelu.hpp"
#include "ir/operators/head.hpp"
#include "layout_query.hpp"

namespace switchyard::ir {
namespace {

// 12 features in fp32 on 4 positions: tokens cut twice, features twice.
Buffer cut_buffer() {
  const layout::Mesh mesh{{{"a", 2}, {"b", 2}}, {0, 1, 2, 3}};
  Buffer buffer{.name = "x", .value = 0, .type = tokens_by(DType::f32, 12, {}), .layout = cut({{0}, {1}})};
  for (int position = 0; position < 4; ++position)
    buffer.box.push_back(layout::shard_box(mesh, buffer.layout, layout::plain({4, 12}), position));
  return buffer;
}

TEST(Buffer, has_local_sizes_in_tokens_of_the_micro_batch) {
  EXPECT_EQ(local_size(cut_buffer(), 3, 4, {40}), (std::vector<i64>{20, 6}));
  EXPECT_EQ(local_bytes(cut_buffer(), 3, 4, {40}), 20 * 6 * 4);
}

TEST(Buffer, refuses_tokens_that_the_replica_does_not_divide) {
  EXPECT_EQ(message_of<InternalError>([] { local_size(cut_buffer(), 0, 4, {42}); }),
            "42 tokens over 4 ranks of a replica");
}

TEST(Buffer, has_a_local_type_with_its_share_of_the_tokens) {
  double share = 0;
  const Type type = local_type(cut_buffer(), 1, 4, &share);
  EXPECT_EQ(type.shape.size, (std::vector<i64>{kTokens, 6}));
  EXPECT_EQ(type.dtype, DType::f32);
  EXPECT_EQ(share, 0.5);
  Buffer weight = cut_buffer();
  weight.type = {DType::bf16, layout::plain({4, 12})};
  EXPECT_EQ(local_type(weight, 1, 4, &share).shape.size, (std::vector<i64>{2, 6}));
  EXPECT_EQ(share, 1);
}

TEST(StageCode, is_printed_with_layouts_and_drops) {
  Graph graph(precision_from("fp32"));
  graph.add_param({"w", {{4, 12}, {}}, 0, "", {}, {}, {}});
  StageCode stage;
  stage.replica = {{{"tp", 2}}, {0, 1}};
  stage.end_unit = 1;
  stage.params = {{0, cut({{0}, {}}), cut({{0}, {}})}};
  const Type type = tokens_by(DType::f32, 12, {});
  stage.buffers = {{.name = "x", .value = 0, .type = type, .layout = cut({{0}, {}})},
                   {.name = "x", .value = 0, .type = type, .layout = cut({{}, {}})},
                   {.name = "y", .value = 1, .type = type, .layout = cut({{}, {}})}};
  stage.forward.code.resize(2);
  Instr &gather = stage.forward.code[0], &gelu = stage.forward.code[1];
  gather.queue = Queue::collective;
  gather.in = gather.drop = gelu.after = {0};
  gather.out = gelu.in = {1};
  gelu.op = std::make_shared<Gelu>(true);
  gelu.out = {2};
  EXPECT_EQ(to_string(graph, stage),
            "units 0..0\n"
            "  w used {tp},{} grad {tp},{}\n"
            "forward\n"
            "  0 u0 %1 x:{},{} = reshard(%0 x:{tp},{})  drop %0\n"
            "  1 u0 %2 y:{},{} = gelu(%1 x:{},{})  after 0\n"
            "backward\n");
}

// The head on two ranks, with the weight cut as given.
StageCode head_stage(const layout::Layout& weight) {
  StageCode stage;
  for (int b = 0; b < 4; ++b) stage.buffers.push_back({.name = "", .layout = b == 1 ? weight : cut({{}, {}})});
  return stage;
}

TEST(StatisticSums, are_made_where_ranks_have_some_rows_of_the_weight_each) {
  Instr head;
  head.op = std::make_shared<HeadLoss>();
  head.in = {0, 1, 2, 3};
  ASSERT_TRUE(statistic_sums(head_stage(cut({{0}, {}})), head));
  EXPECT_EQ(statistic_sums(head_stage(cut({{0}, {}})), head)->chunk, HeadLoss::kChunk);
  StageCode on_devices = head_stage(cut({{0}, {}}));
  on_devices.on_devices = true;
  EXPECT_EQ(statistic_sums(on_devices, head)->chunk, HeadLoss::kDeviceChunk);
  EXPECT_FALSE(statistic_sums(head_stage(cut({{}, {0}})), head));
  head.op = std::make_shared<Gelu>(true);
  EXPECT_FALSE(statistic_sums(head_stage(cut({{0}, {}})), head));
  head.op = nullptr;
  EXPECT_FALSE(statistic_sums(head_stage(cut({{0}, {}})), head)) << "a reshard";
}

// What a walk through a piece starts and ends.
std::string walked(const Segment& segment, int piece) {
  std::string text;
  walk(
      segment, piece, [&](size_t i) { text += fmt::format(" start {}", i); },
      [&](size_t i) { text += fmt::format(" end {}", i); });
  return text;
}

// An operator ends before the next instruction, a collective where it is waited for.
TEST(Walk, starts_in_the_codes_order_and_ends_collectives_where_they_are_waited_for) {
  Segment segment;
  segment.code.resize(5);
  segment.code[0].queue = segment.code[1].queue = segment.code[3].queue = Queue::collective;
  segment.code[4].after = {0, 1};
  segment.after = {3};
  EXPECT_EQ(walked(segment, kWhole), " start 0 start 1 start 2 end 2 start 3 end 0 end 1 start 4 end 4 end 3");
}

// A collective that an instruction behind a cut waits for ends at the cut.
TEST(Walk, of_a_piece_ends_its_collectives) {
  Segment segment;
  segment.code.resize(4);
  segment.code[1].queue = segment.code[3].queue = Queue::collective;
  segment.cuts = {{2, {1}}};
  segment.after = {3};
  segment.awaits = {{7, 0}, {8, 2}};
  segment.last_reads = {{7, 2}, {8, 3}};
  const auto order = [&](int piece) { return walked(segment, piece); };
  EXPECT_EQ(order(0), " start 0 end 0 start 1 end 1");
  EXPECT_EQ(order(1), " start 2 end 2 start 3 end 3");
  EXPECT_EQ(order(kWhole), order(0) + order(1));
  EXPECT_FALSE(is_last(segment, 0));
  EXPECT_TRUE(is_last(segment, 1));
  EXPECT_TRUE(is_last(segment, kWhole));
  EXPECT_EQ(units_read(segment, 0), (std::vector<int>{7}));
  EXPECT_EQ(units_read(segment, 1), (std::vector<int>{7, 8}));
}

// Collectives as pieces of their own end in the pieces whose operators wait for them.
TEST(Walk, of_collectives_apart_ends_them_where_they_are_waited_for) {
  Segment segment;
  segment.code.resize(6);
  segment.code[1].queue = segment.code[2].queue = segment.code[5].queue = Queue::collective;
  segment.code[4].after = {1, 2};
  segment.after = {5};
  segment.apart = true;
  for (const int instr : {1, 2, 3, 4, 5}) segment.cuts.push_back({instr, {}});
  const auto order = [&](int piece) { return walked(segment, piece); };
  EXPECT_EQ(order(0), " start 0 end 0");
  EXPECT_EQ(order(1) + order(2), " start 1 start 2");
  EXPECT_EQ(order(3), " start 3 end 3") << "beside them";
  EXPECT_EQ(order(4), " end 1 end 2 start 4 end 4");
  EXPECT_EQ(order(5), " start 5 end 5");
  std::string all;
  for (int piece = 0; piece < 6; ++piece) {
    all += order(piece);
    EXPECT_EQ(is_collective(segment, piece), piece == 1 || piece == 2 || piece == 5);
    EXPECT_EQ(is_last_computed(segment, piece), piece == 4);
    EXPECT_EQ(awaited_pieces(segment, piece), piece == 4 ? (std::vector<int>{1, 2}) : std::vector<int>());
  }
  EXPECT_EQ(order(kWhole), all);
}

TEST(SameSizes, compare_what_ranks_have_and_not_where_it_lies) {
  Buffer buffer = cut_buffer();
  EXPECT_TRUE(same_sizes(buffer, 0, 3));
  buffer.box[3].hi[1] += 1;
  EXPECT_FALSE(same_sizes(buffer, 0, 3));
}

}  // namespace
}  // namespace switchyard::ir
