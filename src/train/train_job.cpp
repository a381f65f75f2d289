#include "train/train_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/status_line.hpp"
#include "comm/collectives.hpp"
#include "comm/metered_fabric.hpp"
#include "compiler/job_plans.hpp"
#include "data/sources.hpp"
#include "files/checkpoint_folder.hpp"
#include "files/hf_config.hpp"
#include "files/model_folder.hpp"
#include "files/run_lock.hpp"
#include "kernels/memory.hpp"
#include "runtime/tensors.hpp"
#include "train/batch_planner.hpp"
#include "train/channels.hpp"
#include "train/checkpoint_saver.hpp"
#include "train/data_places.hpp"
#include "train/documents.hpp"
#include "train/host_share.hpp"
#include "train/lr_schedule.hpp"
#include "train/model_tokenizer.hpp"
#include "train/rank.hpp"
#include "train/ranks.hpp"
#include "train/run_log.hpp"
#include "train/start_banner.hpp"
#include "train/step_recorder.hpp"
#include "train/stop_signals.hpp"
#include "train/update_settings.hpp"
#include "train/validation.hpp"
#include "train/weights.hpp"

namespace switchyard::train {
namespace {

bool saves(const config::Job& job) {
  return !job.run.out.empty() && (job.run.checkpoint_every > 0 || job.run.save_last);
}

// Files beside the weights of each checkpoint; rank 0 writes them.
files::ModelFiles model_files_of(const config::Job& job, int rank) {
  if (rank != 0 || !saves(job)) return {};
  std::vector<std::filesystem::path> corpora;
  for (const config::DataSource& source : config::sources_of(job)) corpora.emplace_back(source.path);
  return files::model_files(job.model.config, DType::f32, job.model.path, corpora);
}

// The folder of a run that trains, kept from other runs; rank 0 has it.
class RunFolder {
 public:
  RunFolder(std::filesystem::path folder, const std::string& resume, bool force, StatusLine& status)
      : folder_(std::move(folder)), lock_(files::RunLock::take(folder_)) {
    if (!lock_.held())
      status.say(
          fmt::format("{}: this file system has no locks. Start no second run with this folder while this one trains.",
                      folder_.string()));
    if (!resume.empty() && files::is_checkpoint_of(files::find_checkpoint(resume).folder, folder_)) return;
    used_ = files::holds_run(folder_);
    if (force || !used_) return;
    constexpr const char* kRemedy = "start anew with --force, which sets it aside, or choose another run.out";
    if (const auto newest = files::newest_complete(folder_))
      user_error("{0} holds a run already, with a checkpoint of step {1}. Go on with --resume {0}, {2}.",
                 folder_.string(), newest->step, kRemedy);
    user_error("{} holds the log of a run without checkpoints already. Either {}.", folder_.string(), kRemedy);
  }

  // Makes room for a new run.
  void set_aside(StatusLine& status) {
    if (std::exchange(used_, false))
      status.say(fmt::format("the run in {} is set aside in {}", folder_.string(), files::set_aside(folder_).string()));
  }

 private:
  std::filesystem::path folder_;
  files::RunLock lock_;
  bool used_ = false;  // it holds a run that doesn't go on
};

// Each rank writes a part of every checkpoint: this one must find the folder that rank 0 has locked. A file system of
// several hosts may show it late.
void require_shared(const std::string& folder, std::chrono::milliseconds patience,
                    const comm::JointWork::Check& check) {
  constexpr std::chrono::milliseconds kBetween{50};
  const Clock::time_point began = Clock::now();
  while (!files::has_lock(folder)) {
    check();
    if (Clock::now() - began > patience)
      user_error(
          "run.out = \"{}\": rank 0's lock is not in this folder as this rank sees it, but each rank writes a part of "
          "every checkpoint there. Name a folder that all hosts share, by its full path.",
          folder);
    std::this_thread::sleep_for(kBetween);
  }
}

class JobOnRank {
 public:
  // share: the rank's threads and device. folder, status: of rank 0, the latter until the first step.
  JobOnRank(const TrainSettings& settings, const std::vector<data::Source>& sources,
            const std::vector<data::Source>& validated, comm::Fabric& fabric, const compiler::Plans& plans,
            const RankSettings& share, RunFolder* folder, std::unique_ptr<StatusLine> status)
      : status_(std::move(status)),
        warned_(settings.warned),
        resumed_(settings.resume),
        job_(settings.job),
        plan_json_(settings.plan_json),
        fabric_(fabric),
        sources_(sources),
        sampler_(data::sampler_of(sources, job_)),
        memory_(memory_of(job_), kMemoryPatience),
        scope_(&memory_),
        plans_(plans),
        work_(compiler::work_model(job_.model.config)),
        rank_settings_(with_memory(share, memory_)),
        rank_(plans_, job_.model.config, fabric, rank_settings_),
        planner_(job_, sources, sampler_, plans_, fabric, settings.hardware ? &*settings.hardware : nullptr),
        files_(fabric, comm::everyone(fabric, kFileChannel), comm::sign_interval(timeout_of(job_.fabric))),
        recorder_(job_, sources, fabric, files_, memory_, work_, settings.emulated ? &*settings.emulated : nullptr),
        saver_(job_, plans_, fabric,
               {fabric, comm::everyone(fabric, kCheckpointChannel), comm::sign_interval(timeout_of(job_.fabric))},
               model_files_of(job_, fabric.rank()), [this](const std::string& text) { recorder_.say(text); }) {
    rank_.agree_on(config::fingerprint(job_), "job file");
    rank_.agree_on(data::fingerprint(sources), "training corpus", Rank::kSameFiles);
    rank_.agree_on(data::fingerprint(validated), "validation corpus", Rank::kSameFiles);
    rank_.agree_on(saves(job_) ? 1 : 0, "run.out (a folder, or none)", "Give all ranks --out, or none.");
    if (folder) folder->set_aside(*status_);
    if (saves(job_))
      files_.run("run folder",
                 [&](const auto& check) { require_shared(job_.run.out, timeout_of(job_.fabric), check); });
    if (status_) status_->now(settings.resume.empty() ? "initializing the weights" : "loading the checkpoint");
    std::uint64_t weights = 0;
    files_.run("weights", [&](const auto&) {
      if (!settings.resume.empty()) {
        state_ = load_checkpoint(settings.resume, plans_, rank_.store(), job_);
      } else if (job_.model.path.empty()) {
        rank_.store().home.initialize(random_weights(plans_.graph(), job_.seed));
      } else {
        rank_.store().home.initialize(weights_from(plans_.graph(), job_.model.path));
        weights = fingerprint_of_weights(job_.model.path);
      }
    });
    rank_.agree_on(static_cast<std::uint64_t>(state_.step), "step to go on from");
    rank_.agree_on(state_.fingerprint, "checkpoint", Rank::kSameFiles);
    rank_.agree_on(weights, "model.path (other weights)", Rank::kSameFiles);
    draw_on(settings);
    if (state_.step > job_.run.steps)
      user_error(
          "run.steps = {}, but --resume {} goes on from step {}. Raise run.steps, or resume from an earlier "
          "checkpoint.",
          job_.run.steps, settings.resume, state_.step);
    rate_ = schedule_of(job_.optimizer, job_.run.steps, state_.decay_end, state_.step);
    state_.decay_end = rate_.decay_steps;
    const std::string before = std::exchange(state_.schedule, to_string(rate_));
    if (status_ && !before.empty() && before != state_.schedule)
      status_->say(fmt::format("the learning rate was {}; it goes on as {}", before, state_.schedule));
    if (!validated.empty()) validation_.emplace(job_, validated, rank_, fabric);
  }

  // Returns the signal that stopped the run before its last step, or 0; the same on all ranks.
  int run() {
    try {
      return train();
    } catch (const std::exception& error) {
      saver_.wait(timeout_of(job_.fabric) / 4);           // a checkpoint that all ranks began may still be completed
      if (saver_.failed()) saver_.finish();               // throws what is then the reason
      if (saver_.writing()) fabric_.abort(error.what());  // or its thread would wait for the others
      throw;
    }
  }

 private:
  int train() {
    if (state_.step == job_.run.steps) {
      if (status_)
        status_->say(
            fmt::format("{} has all {} steps already; raise --steps (run.steps) to go on", resumed_, job_.run.steps));
      return 0;
    }
    if (status_ && !warned_)
      for (const std::string& line : not_kept(job_)) status_->say(line);
    status_.reset();
    recorder_.open(rank_settings_, runtime::scalar_type(plans_.graph().precision().compute), plan_json_,
                   state_.step + 1);
    saved_step_ = state_.step;
    const StopSignals signals;
    int stopped_by = 0;
    bool validated = true;
    while (state_.step < job_.run.steps && stopped_by == 0) {
      stopped_by = step();
      const bool done = state_.step == job_.run.steps;
      const bool due = validation_ && (done || is_due(job_.validation.every));
      validated = !due || stopped_by == 0;  // a signal leaves little time to save
      if (due && validated) stopped_by = validate();
      const bool last = done || stopped_by != 0;
      if (last) recorder_.summarize();
      if (!job_.run.out.empty() && (is_due(job_.run.checkpoint_every) || (last && job_.run.save_last))) save(last);
    }
    wait_for_checkpoint();
    if (state_.step == job_.run.steps) {
      if (!validated) validate();  // no later run would
      return 0;
    }
    recorder_.say(
        fmt::format("{}: stopped after step {} of {}", name_of_signal(stopped_by), state_.step, job_.run.steps));
    return stopped_by;
  }

  // Returns the signal by which any rank was asked to stop, or 0.
  int validate() {
    recorder_.now("validating");
    recorder_.add(validation_->run([this] { make_room(); }));
    recorder_.now("");
    return std::ranges::max(comm::all_gather_values(fabric_, comm::everyone(fabric_, kStopChannel), "stop signals",
                                                    state_.step, StopSignals::received()));
  }

  // Whether something is done after this step that is done every so many; 0: never.
  bool is_due(i64 every) const { return every > 0 && state_.step % every == 0; }

  // A step that can't be planned, as it needs too much memory or another schedule, ends the job: first the steps before
  // it are saved. All ranks make the same plan, so all of them refuse it.
  template <class Work>
  auto saving_if_refused(const Work& work) {
    try {
      return work();
    } catch (const UserError&) {
      const std::exception_ptr refusal = std::current_exception();
      try {
        if (!job_.run.out.empty() && job_.run.save_last && state_.step != saved_step_) save(true);
      } catch (const std::exception& error) {  // the refusal is why the job ends
        recorder_.say(fmt::format("step {} was not saved: {}", state_.step, error.what()));
      }
      std::rethrow_exception(refusal);
    }
  }

  // An optimizer step, on all ranks at once: sample, plan, assemble, run, record. Returns the signal by which any rank
  // was asked to stop, or 0.
  int step() {
    recorder_.begin(state_.step + 1);
    const auto [batch, plan] = saving_if_refused([&] { return planner_.take(state_.step, cursor_); });
    const runtime::Probe probe = recorder_.planned();
    const i64 checkpoint_copy = saver_.copied_bytes();
    saving_if_refused([&] { assemble(plan); });
    const double lr = learning_rate(rate_, state_.step);
    const runtime::StepResult result = run(batch, plan, lr, probe);
    const AfterStep after = recorder_.record({.batch = batch,
                                              .plan = plan,
                                              .learning_rate = lr,
                                              .result = result,
                                              .checkpoint_copy = checkpoint_copy,
                                              .saving = saver_.writing(),
                                              .checkpoint_time = std::exchange(checkpoint_time_, std::nullopt)},
                                             rank_);
    saving_ = saving_ && after.saving;
    advance(batch, result.finite);
    return after.stop_signal;
  }

  // Plans the next step, too, if there is room for its code.
  void assemble(const batch::StepPlan& plan) {
    rank_.assemble(plan);
    if (const batch::StepPlan* following = planner_.following()) rank_.assemble_ahead(*following);
    make_room();
    if (!std::exchange(announced_, true)) recorder_.aside([&] { announce(); });
  }

  runtime::StepResult run(const data::Batch& batch, const batch::StepPlan& plan, double lr,
                          const runtime::Probe& probe) {
    const std::vector<bool> read = rank_.documents_read(plan, batch.sequences.size());
    const auto update = [&](double norm) { return update_settings(job_.optimizer, lr, state_.updates + 1, norm); };
    return rank_.run(plan, read_documents(sources_, batch.sequences, read, vocabulary()), update, probe,
                     read_labels(sources_, batch.sequences, read));
  }

  // Training goes on as soon as every rank has copied its part of home. It waits for the whole checkpoint where a rank
  // has no room for a copy, after the last step, and without run.async_save.
  void save(bool last) {
    const Clock::time_point began = Clock::now();
    wait_for_checkpoint();
    state_.places = places_of(sources_, cursor_);
    const StatePart part = state_part(plans_, rank_.store(), fabric_.rank());
    const bool room = !last && job_.run.async_save && memory_.live() + saver_.copy_bytes() <= memory_.capacity();
    const auto all = comm::all_gather_values(fabric_, comm::everyone(fabric_, kStartChannel), "room for a copy",
                                             state_.step, static_cast<int>(room));
    saving_ = std::ranges::min(all) != 0;
    if (saving_)
      saver_.begin(part, state_);
    else
      saver_.save(part, state_);
    checkpoint_time_ = Seconds{seconds_since(began)};
    saved_step_ = state_.step;
    if (last)
      recorder_.say(
          fmt::format("saved step {}: {}", state_.step, files::checkpoint_path(job_.run.out, state_.step).string()));
  }

  void wait_for_checkpoint() {
    if (std::exchange(saving_, false)) files_.run("end of a checkpoint", [&](const auto&) { saver_.finish(); });
    saver_.finish();
  }

  // A checkpoint that is being written keeps a copy of home; the step that has no room beside it waits.
  void make_room() {
    if (!saving_) return;
    files_.run("room beside a checkpoint", [&](const auto&) {
      if (rank_.bound().total + saver_.copied_bytes() > memory_.capacity()) saver_.finish();
    });
  }

  void draw_on(const TrainSettings& settings) {
    if (resumed_.empty()) return;
    ResumedData data = resumed_data(resumed_, state_.places, sources_, settings.new_data);
    cursor_ = std::move(data.cursor);
    if (status_ && !data.changed.empty()) status_->say(fmt::format("draws from {}", data.changed));
  }

  // Before the first step runs: what is trained, how, and in how much memory.
  void announce() {
    const std::vector<i64> peaks =
        comm::all_gather_values(fabric_, comm::everyone(fabric_, kStartChannel), "predicted memory",
                                kBeforeTheFirstStep, rank_.predicted().total);
    if (fabric_.rank() != 0) return;
    i64 documents = 0, tokens = 0;
    for (const data::CorpusSize& corpus : data::sizes_of(sources_)) {
      documents += corpus.documents;
      tokens += corpus.tokens;
    }
    for (const std::string& line : start_banner(job_, {.documents = documents,
                                                      .tokens = tokens,
                                                      .work = work_,
                                                      .precision = plans_.graph().precision(),
                                                      .cluster = fabric_.cluster(),
                                                      .predicted = {std::ranges::max(peaks)}}))
      recorder_.say(line, kBannerLabel);
  }

  void advance(const data::Batch& batch, bool updated) {
    ++state_.step;
    if (updated) ++state_.updates;
    cursor_ = batch.next;
    for (const data::Sequence& sequence : batch.sequences) state_.tokens += sequence.count;
  }

  i64 vocabulary() const { return job_.model.config.vocab_size; }

  static RankSettings with_memory(RankSettings settings, kernels::RankMemory& memory) {
    settings.memory = &memory;
    return settings;
  }

  std::unique_ptr<StatusLine> status_;
  const bool warned_;           // what won't be kept
  const std::string& resumed_;  // checkpoint or run folder; empty: the run is new
  const config::Job& job_;
  const std::string& plan_json_;
  comm::Fabric& fabric_;
  const std::vector<data::Source>& sources_;
  data::Sampler sampler_;
  kernels::RankMemory memory_;
  kernels::MemoryScope scope_;
  const compiler::Plans& plans_;
  batch::WorkModel work_;
  LearningRate rate_;
  bool announced_ = false;
  const RankSettings rank_settings_;
  Rank rank_;
  BatchPlanner planner_;
  comm::JointWork files_;  // whatever reads or writes large files or waits for a disk
  StepRecorder recorder_;
  TrainState state_;     // places: those of the last checkpoint
  data::Cursor cursor_;  // where the next step begins
  i64 saved_step_ = 0;   // the run has a checkpoint of it, or begins with it
  bool saving_ = false;  // a checkpoint was begun, and no rank knows that all have written it; the same on all ranks
  std::optional<Seconds> checkpoint_time_;  // that training stood still since the step before
  std::optional<Validation> validation_;
  CheckpointSaver saver_;  // last: it writes what others have
};

// Every checkpoint has the weights as Hugging Face has them. A model for which there is no such folder is better
// refused now.
void require_export(const config::Job& job) {
  if (!saves(job)) return;
  try {
    files::to_hf_config(job.model.config, DType::f32);
  } catch (const UserError& error) {
    user_error(
        "checkpoints hold a Hugging Face model, and this one can't be exported: {} Or train without checkpoints: "
        "run.checkpoint_every = 0, run.save_last = false.",
        error.what());
  }
}

}  // namespace

int train(const TrainSettings& settings, const comm::Launch& launch) {
  const config::Job& job = settings.job;
  if (job.run.steps == 0)
    user_error("run.steps is missing. Say how many optimizer steps to train, such as steps = 100.");
  require_export(job);
  check_threads(launch.distributed ? 1 : job.run.ranks, job.run.threads);
  require_device(job.run.device);
  if (settings.emulated) require_emulation(job, *settings.emulated, launch);
  const std::vector<data::Source> sources = data::open_sources(job);
  require_tokenizer_of_model(job.model.path, sources);
  if (settings.new_data)
    require_tokenizer_of_model((files::find_checkpoint(settings.resume).folder / "model").string(), sources);
  const std::vector<data::Source> validated = data::open_validation_sources(job, sources);
  kernels::install_rank_allocator();
  std::atomic<int> stopped_by = 0;
  on_ranks(
      job.run.ranks, launch, settings.emulated ? settings.emulated->placement() : cluster::uniform(1, job.run.ranks),
      fabric_options(job.fabric),
      [&](comm::Fabric& ranks) {
        std::unique_ptr<StatusLine> status;
        if (ranks.rank() == 0) status = std::make_unique<StatusLine>("train", "compiling the strategies");
        std::optional<RunFolder> folder;
        if (status && !job.run.out.empty()) folder.emplace(job.run.out, settings.resume, settings.force, *status);
        std::optional<comm::MeteredFabric> metered;
        if (settings.emulated) metered.emplace(ranks, settings.emulated->placement());
        comm::Fabric& host = metered ? *metered : ranks;
        const compiler::Plans plans = compiler::plans_of(job, host.cluster());
        const RankSettings alone = rank_settings_of(job, settings.emulated);
        const RankSettings share = with_host_share(alone, host, job.run.device, !launch.distributed);
        on_devices(
            host, share.device, [&] { return channels_of(plans, job.fabric); }, job.fabric,
            [&](comm::Fabric& fabric) {
              stopped_by = JobOnRank(settings, sources, validated, fabric, plans, share, folder ? &*folder : nullptr,
                                     std::move(status))
                               .run();
            });
      },
      settings.joined);
  return stopped_by;
}

}  // namespace switchyard::train
