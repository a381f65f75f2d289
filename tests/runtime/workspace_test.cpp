// What kernels take while they run, beside what the prediction of memory says of them.
#include <gtest/gtest.h>

#include "base/allocation.hpp"
#include "compiler/local_stage.hpp"
#include "kernels/memory.hpp"
#include "runtime/segment_runner.hpp"
#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

// Where the processor has products in bf16, oneDNN makes them, and allocates what is not known here.
bool is_library_product(const ir::Operator& op, DType compute) {
  const std::string& name = op.name();
  return compute == DType::bf16 && __builtin_cpu_supports("avx512bw") && name != "linear_dw" &&
         (name.starts_with("linear") || name.starts_with("head") || name.starts_with("unfused"));
}

// What operators take beside their results. The clock is read before these are made, and when the operator has ended.
struct Watch {
  static inline kernels::RankMemory* memory = nullptr;
  static inline bool running = false;
  static inline std::vector<i64> used;
  static double clock() {
    running = !running;
    if (running)
      memory->reset_peak();
    else
      used.push_back(memory->peak() - memory->live());
    return 0;
  }
};

// The passes of a micro-batch of documents of these lengths, on one rank.
class Passes {
 public:
  Passes(const config::ModelConfig& model, Precision precision, const std::vector<int>& lengths)
      : plans_(tiny_plans({"schedule=zero-bubble"}, 1, 0, precision, 1, 1, {}, {}, model)),
        store_(plans_, 0, at::kCPU),
        runner_(plans_.graph(), stage_, 0, precision.state, at::kCPU),
        rope_(10000, {}) {
    store_.home.initialize(tiny_values(plans_.graph()));
    for (int unit = 0; unit < static_cast<int>(plans_.units().size()); ++unit)
      store_.working.allocate(phase_, {}, unit);
    std::vector<batch::Piece> pieces;
    Documents documents;
    for (const int length : lengths) {
      pieces.push_back({static_cast<int>(documents.size()), 0, length, 1});
      documents.emplace_back(static_cast<size_t>(length), 1);
      size_.tokens += length;
      size_.longest = std::max<i64>(size_.longest, length);
    }
    state_.feeds =
        feeds_of({{size_.tokens}, {pieces}}, documents, {}, 3, {.state = precision.state, .seed = DropoutSeed{}});
  }

  /// used: by operators of the second of two rounds, when all tables are made.
  template <class Check>
  void run(const Check& check) {
    for (const bool first : {true, false}) {
      runner_.make_room(state_);
      for (const Pass pass : {Pass::F, Pass::B, Pass::W}) run(pass, first, check);
    }
  }

 private:
  template <class Check>
  void run(Pass pass, bool first, const Check& check) {
    const ir::Segment& segment = stage_.segment(pass);
    Watch::memory = &memory_;
    Watch::used.clear();
    const RunHooks hooks{
        .await = [](int) {}, .release = [](int) {}, .timed = [](int, Seconds, Seconds) {}, .clock = &Watch::clock};
    runner_.run(segment, ir::kWhole, state_, store_.working, {phase_}, {}, rope_, hooks);
    if (first) return;
    const compiler::LocalStage local(stage_, 0);
    size_t next = 0;
    for (size_t i = 0; i < segment.code.size(); ++i)
      if (segment.code[i].op) check(*segment.code[i].op, Watch::used.at(next++), local.workspace(pass, i, size_));
  }

  kernels::RankMemory memory_{i64{1} << 30};
  kernels::MemoryScope scope_{&memory_};
  const compiler::Plans plans_;
  const ir::StageCode& stage_ = plans_.strategies()[0].groups[0].stages[0];
  const PhaseKey phase_{0, 0};
  Store store_;
  SegmentRunner runner_;
  MicroBatchState state_;
  RopeTables rope_;
  ir::CallSize size_;
};

config::ModelConfig tiny_gpt2() {
  config::ModelConfig model = config::family_defaults(config::Family::gpt2);
  model.layers = 1;
  model.hidden_size = 32;
  model.heads = model.kv_heads = 4;
  model.head_dim = 8;
  model.ffn_size = 48;
  model.vocab_size = 40;
  model.max_positions = 1024;
  return model;
}

std::vector<config::ModelConfig> models() {
  std::vector<config::ModelConfig> all(5, tiny_llama());
  all[1].qk_norm = all[1].qkv_bias = all[1].o_bias = true;
  all[1].head_dim = 12;
  all[2].attention = config::AttentionKind::unfused;
  all[3] = tiny_gpt2();
  all[4] = tiny_gpt2();
  all[4].attention = config::AttentionKind::unfused;
  all[4].dropout = 0.2;
  return all;
}

TEST(Workspace, IsWhatKernelsTake) {
  kernels::install_rank_allocator();
  for (const char* precision : {"fp64", "fp32", "bf16"})
    for (const std::vector<int>& lengths :
         {std::vector{1}, std::vector{4, 1, 3}, std::vector{24, 24, 24, 17, 9}, std::vector{600, 3}}) {
      for (const config::ModelConfig& model : models()) {
        const Precision types = precision_from(precision);
        Passes(model, types, lengths).run([&](const ir::Operator& op, i64 used, i64 predicted) {
          if (is_library_product(op, types.compute)) return;
          const std::string what = fmt::format("{} in {}, {} documents of up to {} tokens", op.name(), precision,
                                               lengths.size(), lengths[0]);
          EXPECT_LE(used, allocated(predicted)) << what;
          if (types.compute != DType::bf16) {
            EXPECT_EQ(used, allocated(predicted)) << what;
          } else if (lengths.size() > 1) {
            EXPECT_GE(used, predicted * 9 / 10) << what;
          }
        });
      }
    }
}

}  // namespace
}  // namespace switchyard::runtime
