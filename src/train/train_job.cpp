#include "train/train_job.hpp"

#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <thread>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "batch/validate.hpp"
#include "batch/wire.hpp"
#include "comm/collectives.hpp"
#include "compiler/job_plans.hpp"
#include "data/job_sampling.hpp"
#include "files/checkpoint_folder.hpp"
#include "files/disk.hpp"
#include "files/hf_config.hpp"
#include "files/json_lines.hpp"
#include "files/run_lock.hpp"
#include "files/tensorboard.hpp"
#include "kernels/matmul_rate.hpp"
#include "kernels/memory.hpp"
#include "kernels/threads.hpp"
#include "runtime/tensors.hpp"
#include "simulator/trace.hpp"
#include "train/channels.hpp"
#include "train/checkpoint.hpp"
#include "train/host_share.hpp"
#include "train/lr_schedule.hpp"
#include "train/progress.hpp"
#include "train/rank.hpp"
#include "train/ranks.hpp"
#include "train/update_settings.hpp"
#include "train/weights.hpp"

namespace switchyard::train {
namespace {

std::chrono::milliseconds timeout_of(const config::Job& job) {
  return std::chrono::milliseconds(static_cast<i64>(job.fabric.timeout.count * 1000));
}

// What each rank tells rank 0 after a step.
struct RankFigures {
  i64 peak = 0, predicted_peak = 0, intra = 0, inter = 0;
  double seconds = 0, waiting = 0, parameters = 0;
};

// The run folder, written by rank 0.
class RunLog {
 public:
  RunLog(const config::Job& job, const std::string& plan, i64 first_step)
      : progress_(std::cerr, {first_step, job.run.steps, isatty(STDERR_FILENO) != 0, job.run.log_every, Clock::now}),
        heartbeat_([this] { progress_.tick(); }, std::chrono::milliseconds(500)) {
    if (job.run.out.empty()) return;
    if (const auto line = files::set_aside_after(job.run.out, first_step - 1))
      say(fmt::format("checkpoints of steps {} are set aside in {}, with the log as it was", fmt::join(line->steps, ", "), line->folder.string()));
    lines_.emplace(files::JsonLines::open(job.run.out, first_step - 1));
    events_.emplace(files::EventWriter::create(job.run.out, first_step));
    files::write_text(job.run.out + "/job.toml", config::to_toml(job));
    const std::string plan_path = job.run.out + "/plan.json";
    if (!plan.empty())
      files::write_text(plan_path, plan);
    else if (first_step == 1)
      std::filesystem::remove(plan_path);  // of another run
  }
  void add(const StepRecord& record) {
    if (lines_) lines_->append(to_json(record));
    if (events_) events_->add(record.step, scalars(record));
    progress_.step_done(record);
  }
  void say(const std::string& text) { progress_.say(text); }

 private:
  Progress progress_;
  Heartbeat heartbeat_;
  std::optional<files::JsonLines> lines_;
  std::optional<files::EventWriter> events_;
};

class JobOnRank {
 public:
  JobOnRank(const TrainSettings& settings, const data::Corpus& corpus, comm::Fabric& fabric, bool threads_of_one_process)
      : job_(settings.job),
        plan_(settings.plan),
        fabric_(fabric),
        corpus_(corpus),
        sampler_(corpus, data::sampler_settings(job_)),
        memory_(job_.run.memory_budget.count > 0 ? job_.run.memory_budget.count : kernels::machine_memory()),
        scope_(&memory_),
        plans_(compiler::plans_of(job_, fabric.cluster())),
        buckets_(compiler::bucket_specs(job_, plans_)),
        work_(compiler::work_model(job_.model.config)),
        rate_(schedule_of(job_.optimizer, job_.run.steps)),
        rank_settings_(with_host_share(rank_settings(), fabric, job_.run.device, threads_of_one_process)),
        rank_(plans_, job_.model.config, fabric, rank_settings_),
        files_(fabric, comm::everyone(fabric, kFileChannel), comm::sign_interval(timeout_of(job_))) {
    rank_.agree_on(config::fingerprint(job_), "job file");
    files_.run("weights", [&](const auto&) {
      if (!settings.resume.empty())
        state_ = load_checkpoint(settings.resume, plans_, rank_.store().home, job_);
      else
        rank_.store().home.initialize(job_.model.path.empty() ? random_weights(plans_.graph(), job_.seed)
                                                         : weights_from(plans_.graph(), job_.model.path));
    });
    rank_.agree_on(static_cast<std::uint64_t>(state_.step), "step to go on from");
    if (state_.step > job_.run.steps)
      user_error("run.steps = {}, but --resume {} goes on from step {}. Raise run.steps, or resume from an earlier checkpoint.", job_.run.steps, settings.resume,
                 state_.step);
  }

  void run() {
    measure_peak();
    files_.run("run folder", [&](const auto&) {
      if (fabric_.rank() == 0) log_.emplace(job_, plan_, state_.step + 1);
    });
    while (state_.step < job_.run.steps) {
      step();
      const bool due = job_.run.checkpoint_every > 0 && (state_.step % job_.run.checkpoint_every == 0 || state_.step == job_.run.steps);
      if (due && !job_.run.out.empty()) save_checkpoint(job_, plans_, rank_.store().home, fabric_.rank(), files_, state_);
    }
  }

 private:
  RankSettings rank_settings() {
    RankSettings settings;
    settings.threads = job_.run.threads;
    settings.memory_budget = job_.run.memory_budget.count;
    settings.prefetch = job_.run.prefetch;
    settings.seed = static_cast<std::uint64_t>(job_.seed);
    settings.memory = &memory_;
    return settings;
  }

  // All ranks at once, as they compute.
  void measure_peak() {
    kernels::use_threads(rank_settings_.threads);
    const at::ScalarType type = runtime::scalar_type(plans_.graph().precision().compute);
    const double mine = kernels::matmul_rate(type, rank_settings_.device, Seconds{0.05}).count;
    for (const double rate : comm::all_gather_values(fabric_, comm::everyone(fabric_, kStepChannel), "matmul rate", 0, mine)) matmul_rate_ += rate;
  }

  // Planned once, by rank 0: floating-point arithmetic then decides nothing twice.
  batch::StepPlan plan(const std::vector<i64>& lengths) {
    std::vector<std::byte> bytes;
    if (fabric_.rank() == 0) bytes = batch::encode(batch::plan_batch(state_.step, lengths, buckets_, work_, compiler::phase_order(job_)));
    const batch::StepPlan plan = batch::decode(comm::broadcast_blob(fabric_, comm::everyone(fabric_, kStepChannel), "batch plan", 2 * state_.step, bytes));
    batch::validate(plan, lengths, buckets_);
    return plan;
  }

  runtime::Documents read(const data::Batch& batch) const {
    runtime::Documents documents;
    std::vector<i64> ids;
    for (const data::Sequence& sequence : batch.sequences) {
      ids.resize(static_cast<size_t>(sequence.count));
      corpus_.read(sequence.document, sequence.first, 1, job_.model.config.vocab_size, ids);
      documents.emplace_back(ids.begin(), ids.end());
    }
    return documents;
  }

  void step() {
    const auto start = Clock::now();
    const data::Batch batch = sampler_.batch(state_.cursor);
    const std::vector<i64> lengths = data::Sampler::lengths(batch);
    const batch::StepPlan planned = plan(lengths);
    memory_.reset_peak();
    const comm::Traffic before = fabric_.traffic();
    const double lr = learning_rate(rate_, state_.step);
    const bool traced = state_.step + 1 == job_.run.trace_step;
    const runtime::StepResult result = rank_.step(planned, read(batch), [&](double norm) {
      return update_settings(job_.optimizer, lr, state_.updates + 1, norm);
    }, {.spans = traced});
    const comm::Traffic after = fabric_.traffic();
    RankFigures mine;
    mine.peak = memory_.peak();
    mine.predicted_peak = rank_.predicted().total;
    mine.intra = after[1] - before[1];
    mine.inter = after[2] - before[2];
    mine.seconds = result.times.total;
    mine.waiting = result.times.waiting;
    mine.parameters = result.times.parameters;
    const auto all = comm::all_gather_values(fabric_, comm::everyone(fabric_, kStepChannel), "step figures", 2 * state_.step + 1, mine);
    if (traced) keep_timeline(result.spans);
    ++state_.step;
    if (result.finite) ++state_.updates;
    state_.cursor = batch.next;
    const i64 tokens = std::accumulate(lengths.begin(), lengths.end(), i64{0});
    state_.tokens += tokens;
    if (!log_) return;
    const double seconds = seconds_since(start);
    StepRecord record = figures_of(all, seconds);
    record.step = state_.step;
    record.loss = result.loss;
    record.learning_rate = lr;
    record.grad_norm = result.norm;
    record.tokens = tokens;
    record.padding_share = batch::padding_share(planned);
    record.skipped = !result.finite;
    double flops = 0;
    for (const i64 length : lengths) flops += 3 * work_(length);  // backward: twice the forward pass
    record.matmul_share = flops / (seconds * matmul_rate_);
    log_->add(record);
    if (record.skipped) log_->say(fmt::format("step {}: loss or gradient is not finite; the update was skipped", record.step));
  }

  void keep_timeline(const std::vector<runtime::RowSpan>& mine) {
    const auto blobs = comm::all_gather_blobs(fabric_, comm::everyone(fabric_, kTimelineChannel), "timeline", state_.step, std::as_bytes(std::span(mine)));
    files_.run("timeline", [&](const auto&) {
      if (log_ && !job_.run.out.empty()) write_timeline(blobs);
    });
  }

  void write_timeline(const std::vector<std::vector<std::byte>>& blobs) const {
    std::vector<std::vector<simulator::TracedSpan>> spans(blobs.size());
    for (size_t rank = 0; rank < blobs.size(); ++rank) {
      std::vector<runtime::RowSpan> rows(blobs[rank].size() / sizeof(runtime::RowSpan));
      std::memcpy(rows.data(), blobs[rank].data(), blobs[rank].size());
      for (const runtime::RowSpan& row : rows) spans[rank].push_back({row.row, {row.begin, row.end, row.communication}});
    }
    simulator::begin_with_the_last(rank_.program(), spans);
    files::write_text(job_.run.out + "/timeline.json",
                      simulator::trace_of(rank_.program(), spans, {{"step", state_.step + 1}, {"hosts", fabric_.cluster().host}}) + "\n");
  }

  static StepRecord figures_of(const std::vector<RankFigures>& all, double seconds) {
    StepRecord record;
    record.time = Seconds{seconds};
    double waiting = 0;
    for (const RankFigures& figures : all) {
      record.peak_memory.push_back(Bytes{figures.peak});
      record.predicted_peak_memory.push_back(Bytes{figures.predicted_peak});
      record.intra_host_traffic.count += figures.intra;
      record.inter_host_traffic.count += figures.inter;
      record.switch_time.count = std::max(record.switch_time.count, figures.parameters);
      waiting += figures.waiting;
    }
    record.bubble_share = waiting / (static_cast<double>(all.size()) * seconds);
    return record;
  }

  const config::Job& job_;
  const std::string& plan_;
  comm::Fabric& fabric_;
  const data::Corpus& corpus_;
  data::Sampler sampler_;
  kernels::RankMemory memory_;
  kernels::MemoryScope scope_;
  compiler::Plans plans_;
  std::vector<batch::BucketSpec> buckets_;
  batch::WorkModel work_;
  LearningRate rate_;
  const RankSettings rank_settings_;
  Rank rank_;
  comm::JointWork files_;  // whatever reads or writes large files or waits for a disk
  TrainState state_;
  double matmul_rate_ = 0;  // flops per second, all ranks
  std::optional<RunLog> log_;
};

// The folder of a run that trains, kept from other runs; rank 0 has it.
class RunFolder {
 public:
  RunFolder(const std::filesystem::path& folder, const std::string& resume) : lock_(files::RunLock::take(folder)) {
    if (!lock_.held())
      fmt::print(stderr, "{}: this file system has no locks. Start no second run with this folder while this one trains.\n", folder.string());
    const auto newest = files::newest_complete(folder);
    if (!newest || (!resume.empty() && files::is_checkpoint_of(files::find_checkpoint(resume).folder, folder))) return;
    user_error("{0} holds a run already, with a checkpoint of step {1}. Go on with --resume {0}, or choose another run.out.", folder.string(),
               newest->step);
  }

 private:
  files::RunLock lock_;
};

// Every checkpoint has the weights as Hugging Face has them. A model for which there is no such folder is better refused now.
void require_export(const config::Job& job) {
  if (job.run.out.empty() || job.run.checkpoint_every == 0) return;
  try {
    files::to_hf_config(job.model.config, DType::f32);
  } catch (const UserError& error) {
    user_error("checkpoints hold a Hugging Face model, and this one can't be exported: {} Or train without checkpoints: run.checkpoint_every = 0.",
               error.what());
  }
}

}  // namespace

void train(const TrainSettings& settings, const comm::Launch& launch) {
  const config::Job& job = settings.job;
  if (job.data.path.empty()) user_error("data.path is missing. Make a folder with `switchyard data prepare` and name it there.");
  if (job.run.steps == 0) user_error("run.steps is missing. Say how many optimizer steps to train, such as steps = 100.");
  require_export(job);
  check_threads(launch.distributed ? 1 : job.run.ranks, job.run.threads);
  require_device(job.run.device);
  const data::Corpus corpus = data::Corpus::open(job.data.path);
  kernels::install_rank_allocator();
  on_ranks(job.run.ranks, launch, cluster::uniform(1, job.run.ranks), fabric_options(job.fabric),
           [&](comm::Fabric& fabric) {
             std::optional<RunFolder> folder;
             if (fabric.rank() == 0 && !job.run.out.empty()) folder.emplace(job.run.out, settings.resume);
             JobOnRank(settings, corpus, fabric, !launch.distributed).run();
           });
}

}  // namespace switchyard::train
