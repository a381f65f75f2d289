#include "plan_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <stop_token>
#include <thread>
#include <tuple>
#include <utility>

#include "base/clock.hpp"
#include "compiler/job_plans.hpp"
#include "compiler/memory.hpp"
#include "config/job_draft.hpp"
#include "first_step.hpp"
#include "open_job.hpp"
#include "planner/explain.hpp"
#include "simulator/break_even.hpp"
#include "simulator/bucket_choice.hpp"
#include "simulator/simulate.hpp"
#include "simulator/task_work.hpp"

namespace switchyard::apps {
namespace {

constexpr int kFewestSteps = 2, kMostSteps = 16;  // whose documents stand for all: as many as have so many documents
constexpr i64 kDocuments = 256;
// Where all plans need more memory than the planner's model says: how often smaller ones are searched for, and by how
// much smaller at least.
constexpr int kMostSmaller = 3;
constexpr double kSmaller = 1.05;
constexpr Clock::time_point kAnyTime = Clock::time_point::max();
constexpr double kWorthABucket = 0.005;  // share of a step that another bucket to choose from must save

int steps_that_stand_for_all(const config::Job& job) {
  const auto of_a_step = static_cast<i64>(lengths_of_steps(job, 1).front().size());
  return static_cast<int>(std::clamp<i64>((kDocuments + of_a_step - 1) / of_a_step, kFewestSteps, kMostSteps));
}

// The planner wouldn't keep to them.
void refuse_settings(const config::JobDraft& draft, config::Errors& errors) {
  const auto refuse = [&](const std::string& key) {
    if (draft.has(key))
      errors.add(draft.where(key), fmt::format("{} is set, but the strategies are left to the planner, which chooses "
                                               "that, too. Leave it out, or give the "
                                               "buckets strategies.",
                                               key));
  };
  for (const config::Key<config::JobDraft>& key : config::job_keys())
    if (key.name.starts_with("parallel.") || key.name == "run.order") refuse(key.name);
  for (size_t i = 0; i < draft.buckets.size(); ++i) refuse(fmt::format("bucket.{}.file", i));
}

std::string strategies_of(const std::vector<config::Bucket>& buckets) {
  std::string text;
  for (const config::Bucket& bucket : buckets)
    text += fmt::format("{}to {}: {}", text.empty() ? "" : "; ", bucket.max_length,
                        bucket.degrees.empty() ? bucket.strategy.name : config::to_text(bucket.degrees));
  return text;
}

bool same(const planner::Choice& a, const planner::Choice& b) { return a.phases == b.phases && a.zero == b.zero; }

// What messages may carry, and whether that is in the state dtype.
struct Role {
  std::string_view name;
  codecs::Codec config::Compression::*codec;
  bool of_state = false;
};
constexpr std::array<Role, 7> kRoles{{{"gradients", &config::Compression::gradients, true},
                                      {"pipeline", &config::Compression::pipeline},
                                      {"activations", &config::Compression::activations},
                                      {"ulysses", &config::Compression::ulysses},
                                      {"keys", &config::Compression::keys},
                                      {"gathers", &config::Compression::gathers},
                                      {"switches", &config::Compression::switches}}};

// "gradients int8, pipeline bf16"; empty without codecs.
std::string codecs_of(const config::Bucket& bucket) {
  std::string text;
  for (const Role& role : kRoles)
    if (const codecs::Codec codec = bucket.strategy.compression.*role.codec; codec != codecs::Codec::none)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", role.name, name_of(codec));
  return text;
}

// "; encoded: gradients int8", or what each bucket has.
std::string codecs_of(const std::vector<config::Bucket>& buckets) {
  const auto codecs = [](const config::Bucket& bucket) { return codecs_of(bucket); };
  if (std::ranges::all_of(buckets, [&](const config::Bucket& one) { return codecs(one).empty(); })) return "";
  const bool equal =
      std::ranges::all_of(buckets, [&](const config::Bucket& one) { return codecs(one) == codecs(buckets.front()); });
  if (equal) return "; encoded: " + codecs(buckets.front());
  std::string text = "; encoded";
  for (const config::Bucket& bucket : buckets)
    if (const std::string of = codecs(bucket); !of.empty())
      text += fmt::format("{} to {}: {}", text.ends_with("encoded") ? "" : ",", bucket.max_length, of);
  return text;
}

std::string text_of(double seconds) { return format_duration(Seconds{seconds}); }

}  // namespace

bool leaves_strategies_open(const config::JobDraft& draft, config::Errors& errors) {
  const bool tried =
      draft.faulty.contains("bucket") || draft.faulty.contains("parallel.") || !draft.misses("parallel.preset");
  const bool open = !tried && std::ranges::all_of(draft.buckets, config::is_auto);
  if (open) refuse_settings(draft, errors);
  return open;
}

std::optional<int> ranks_of(const config::JobDraft& draft, const config::Errors& errors) {
  if (draft.faulty.contains("run.ranks")) errors.throw_if_any();
  return draft.has("run.ranks") ? std::optional(draft.job.run.ranks) : std::nullopt;
}

config::Job open_unplanned(config::JobDraft draft, config::Errors& errors, int ranks) {
  config::BucketDraft all;
  all.max_length = draft.job.batch.context;
  all.text = "1,1,1";
  draft.buckets = {all};
  draft.job.run.order.clear();  // an error already
  std::erase_if(draft.given, [](const auto& given) { return given.first.starts_with("bucket."); });
  for (const char* key : {"bucket.0.max_length", "bucket.0.strategy"}) draft.given[key] = draft.origin;
  if (draft.misses("run.ranks")) {
    draft.job.run.ranks = ranks;
    draft.given["run.ranks"] = draft.origin;
  }
  return open_job(draft, errors);
}

planner::Request request_of(const config::Job& job, const cluster::Hardware& hardware, int steps) {
  planner::Request request{.model = job.model.config,
                           .precision = compiler::precision_of(job.run),
                           .hardware = hardware,
                           .steps = {},
                           .code = compiler::code_options(job, hardware.placement())};
  request.steps = lengths_of_steps(job, steps);
  request.context = job.batch.context;
  request.memory = job.run.memory_budget.count;
  request.allowed = allowed_codecs(job);
  return request;
}

const config::Compression& allowed_codecs(const config::Job& job) { return job.buckets.front().strategy.compression; }

config::Job with_break_even(config::Job job, const cluster::Hardware& hardware) {
  const Precision precision = compiler::precision_of(job.run);
  const cluster::Link link = hardware.inter_host ? cluster::Link::inter_host : cluster::Link::intra_host;
  for (config::Bucket& bucket : job.buckets) {
    config::Compression& how = bucket.strategy.compression;
    i64 least = 0;
    for (const Role& role : kRoles)
      if (const auto size = simulator::break_even(how.*role.codec, role.of_state ? precision.state : precision.compute,
                                                  hardware, link))
        least = std::max(least, *size);
    if (least > 0) how.smallest = {least};
  }
  return job;
}

config::Job within_memory(config::Job job, const cluster::Hardware& hardware) {
  const i64 device = hardware.device.usable().count;
  if (job.run.memory_budget.count == 0 || job.run.memory_budget.count > device) job.run.memory_budget = {device};
  return job;
}

config::Job planned_job(config::Job job, const planner::Planner& planner, const planner::Choice& choice) {
  job.buckets = planner.buckets(choice);
  job.run.home = 0;
  job.run.order = planner.order(choice);
  return within_memory(std::move(job), planner.request().hardware);
}

namespace {

// A job on the simulator, at first with the memory of one rank alone: that of all takes longer to find than the time.
class Trial {
 public:
  Trial(const config::Job& job, std::shared_ptr<const compiler::CompiledModel> model, const cluster::Hardware& hardware,
        simulator::KnownSegments& known, const std::vector<std::vector<i64>>& lengths)
      : plans_(compiler::plans_of(job, std::move(model))), hardware_(hardware), known_(known) {
    const compiler::StepSettings settings = compiler::step_settings(job, plans_);
    simulator::BucketChooser chooser(settings, plans_, hardware, known);
    for (size_t i = 0; i < lengths.size(); ++i) {
      const auto index = static_cast<i64>(i);
      batch::StepPlan plan = job.run.choose_buckets ? chooser.choose(index, lengths[i]).step.plan
                                                    : compiler::planned_batch(settings, index, lengths[i]);
      steps_.emplace_back(settings, plans_, std::move(plan), lengths[i]);
      seconds_.push_back(seconds_of(steps_.back()));
    }
  }

  void keep_to_budget() {
    size_t i = 0;
    for (compiler::StepPlanner& step : steps_) {
      if (step.keep_to_budget()) seconds_[i] = seconds_of(step);
      ++i;
    }
  }

  const compiler::Plans& plans() const { return plans_; }

  /// Mean over the steps.
  double seconds() const {
    return std::accumulate(seconds_.begin(), seconds_.end(), 0.0) / static_cast<double>(seconds_.size());
  }

  /// Whether all steps are within the budget.
  bool fits() const { return std::ranges::all_of(steps_, &compiler::StepPlanner::fits); }

  /// The highest of all steps.
  i64 peak() {
    i64 peak = 0;
    for (compiler::StepPlanner& step : steps_) peak = std::max(peak, step.peak());
    return peak;
  }

 private:
  double seconds_of(const compiler::StepPlanner& planner) const {
    const PlannedStep& step = planner.step();
    return simulator::simulate(step.program, step.plan, plans_, hardware_, known_).step_seconds;
  }

  compiler::Plans plans_;
  const cluster::Hardware& hardware_;
  simulator::KnownSegments& known_;
  std::list<compiler::StepPlanner> steps_;
  std::vector<double> seconds_;  // by step
};

// The job with one bucket more. It comes behind those of the same max_length, so never first, and runs after the one
// before it.
config::Job with_bucket(config::Job job, const config::Bucket& bucket) {
  const auto place = std::ranges::find_if(
      job.buckets, [&](const config::Bucket& other) { return other.max_length < bucket.max_length; });
  const int index = static_cast<int>(place - job.buckets.begin());
  std::vector<int>& order = job.run.order;
  for (int& other : order) other += other >= index ? 1 : 0;
  if (!order.empty()) order.insert(std::ranges::find(order, index - 1) + 1, index);
  job.buckets.insert(place, bucket);
  return job;
}

// The same plan with a change of which the planner's model knows nothing. change: whether it concerns the bucket. None
// if it concerns no bucket.
std::optional<config::Job> with(config::Job job, const std::function<bool(config::Bucket&)>& change) {
  bool any = false;
  for (config::Bucket& bucket : job.buckets) any = change(bucket) || any;
  return any ? std::optional(std::move(job)) : std::nullopt;
}

// Keys pass along the rings in steps.
std::optional<config::Job> in_ring_steps(const config::Job& job) {
  return with(job, [](config::Bucket& bucket) {
    if (!bucket.strategy.has(config::StageAxis::ring)) return false;
    bucket.strategy.exchange = KeyPassing::ring;
    return true;
  });
}

constexpr const char* kInSteps = "; keys of rings in steps (exchange=ring)";

// All documents are divided over the whole ring. A degree for each is chosen by the times of a nominal device: now and
// then one degree for all is quicker.
std::optional<config::Job> with_one_degree(const config::Job& job) {
  return with(job, [](config::Bucket& bucket) {
    if (!bucket.strategy.has(config::StageAxis::ring)) return false;
    bucket.strategy.ring_degree = config::RingDegree::uniform;
    return true;
  });
}

constexpr const char* kOneDegree = "; one degree of the ring for all documents (ring_degree=uniform)";

bool exchanges_activations(const config::Strategy& strategy) {
  return std::ranges::any_of(strategy.groups, [](const config::Group& group) {
    return std::ranges::any_of(group.stages, [](const config::Stage& stage) { return stage.mesh.positions() > 1; });
  });
}

// Micro-batches run in twos where the ranks of a stage exchange activations: of half the size where documents fit, or
// all of the same size, which needs room for the activations of one more. None where no bucket can run so; halved: nor
// where none can be halved.
std::optional<config::Job> in_pairs(const JudgedPlan& plan, bool has_room, bool halved) {
  if (!plan.job.run.overlap) return std::nullopt;
  bool any_halved = false;
  std::optional<config::Job> job = with(plan.job, [&](config::Bucket& bucket) {
    config::Strategy& strategy = bucket.strategy;
    const i64 half = std::max(bucket.max_length, strategy.micro_batch_tokens / 2);
    const bool halves = halved && half < strategy.micro_batch_tokens;
    if (strategy.schedule == config::ScheduleKind::zeropp || !strategy.order.order.empty() || (!halves && !has_room) ||
        !exchanges_activations(strategy))
      return false;
    any_halved = any_halved || halves;
    strategy.paired = true;
    if (halves) strategy.micro_batch_tokens = half;
    return true;
  });
  return any_halved == halved ? job : std::nullopt;
}

constexpr const char* kInPairs = "; micro-batches in pairs (paired=true)";
constexpr const char* kInHalves = "; micro-batches in pairs, of half as many tokens where documents fit (paired=true)";

// Pairs of micro-batches are tried where exchanges that nothing hides take more than this share of a step.
constexpr double kWorthPairs = 0.02;

// The quickest first, those that don't fit last.
std::tuple<bool, double, bool> order_of(const JudgedPlan& plan) { return {!plan.fits, plan.seconds, plan.own}; }

// All but the peak of a plan that doesn't fit, which takes long to find.
void finish(JudgedPlan& plan, Trial& trial) {
  trial.keep_to_budget();
  plan.seconds = trial.seconds();
  plan.checkpoint_copy = checkpoint_copy(plan.job, trial.plans());
  plan.fits = trial.fits();
  if (plan.fits) plan.peak = trial.peak();
}

}  // namespace

JudgedPlan simulated(std::string name, const config::Job& job, const cluster::Hardware& hardware,
                     const std::vector<std::vector<i64>>& steps) {
  JudgedPlan judged{.name = std::move(name), .job = job};
  simulator::KnownSegments known;
  Trial trial(job, compiler::model_of(job, hardware.placement()), hardware, known, steps);
  finish(judged, trial);
  judged.peak = trial.peak();
  return judged;
}

struct Contest::Entry {
  JudgedPlan plan;
  std::unique_ptr<Trial> trial{};   // until its time within the budget is known
  std::unique_ptr<Trial> beyond{};  // then, if it doesn't fit
  std::exception_ptr failed{};
  std::atomic<Clock::time_point> begin_until{kAnyTime};
  bool left_out = false;
};

// Threads that work through tasks, on all cores but one, which belongs to the search until it has ended.
class Contest::Workers {
 public:
  Workers() {
    for (unsigned thread = 1; thread < std::thread::hardware_concurrency(); ++thread)
      threads_.emplace_back([this](const std::stop_token& stop) {
        std::unique_lock lock(mutex_);
        while (changed_.wait(lock, stop, [&] { return !waiting_.empty(); })) work(lock);
      });
  }
  // Leaves out all tasks that have not begun.
  ~Workers() {
    const std::lock_guard lock(mutex_);
    waiting_.clear();
  }

  /// task: throws nothing.
  void add(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(task));
    changed_.notify_one();
  }

  /// The thread that waits in finish() is one of them.
  int count() const { return static_cast<int>(threads_.size()) + 1; }
  /// Works along until all tasks are done.
  void finish() {
    std::unique_lock lock(mutex_);
    while (!waiting_.empty() || running_ > 0) {
      if (waiting_.empty())
        changed_.wait(lock);
      else
        work(lock);
    }
  }

 private:
  void work(std::unique_lock<std::mutex>& lock) {
    const std::function<void()> task = std::move(waiting_.front());
    waiting_.pop_front();
    ++running_;
    lock.unlock();
    task();
    lock.lock();
    --running_;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> waiting_;
  int running_ = 0;
  std::vector<std::jthread> threads_;
};

Contest::Contest(const config::Job& job, const planner::Planner& planner, bool own, int most_buckets)
    : job_(job),
      planner_(planner),
      model_(compiler::model_of(job, planner.request().hardware.placement())),
      known_(std::make_unique<simulator::KnownSegments>()),
      workers_(std::make_unique<Workers>()) {
  if (!own || (most_buckets > 0 && std::cmp_greater(job.buckets.size(), most_buckets))) return;
  JudgedPlan plan{
      .name = strategies_of(job.buckets), .job = within_memory(job, planner.request().hardware), .own = true};
  if (job.run.home == 0) plan.choice = planner.choice(job.buckets, compiler::phase_order(job));
  if (plan.choice) plan.name = planner.to_string(*plan.choice);
  start(std::move(plan));
}

Contest::~Contest() = default;

Contest::Entry* Contest::find(const planner::Choice& choice) {
  const auto entry = std::ranges::find_if(
      entries_, [&](const Entry& other) { return other.plan.choice && same(*other.plan.choice, choice); });
  return entry == entries_.end() ? nullptr : &*entry;
}

void Contest::add(const planner::Choice& choice) {
  if (!find(choice))
    start({.name = planner_.to_string(choice), .choice = choice, .job = planned_job(job_, planner_, choice)});
}

void Contest::leave_out(double seconds, const std::vector<planner::Choice>& but) {
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (Entry& entry : entries_)
    if (!entry.plan.own) entry.begin_until = until;
  for (const planner::Choice& choice : but) find(choice)->begin_until = kAnyTime;
}

void Contest::start(JudgedPlan plan) { simulate(entries_.emplace_back(std::move(plan))); }

void Contest::simulate(Entry& entry) {
  simulate(entry, [this, &entry] {
    entry.left_out = Clock::now() > entry.begin_until.load();
    if (entry.left_out) return;
    const planner::Request& request = planner_.request();
    const auto trial_of = [&](const config::Job& job) {
      return std::make_unique<Trial>(job, model_, request.hardware, *known_, request.steps);
    };
    entry.trial = trial_of(entry.plan.job);
    for (const auto& [variant, name] : {std::pair(&in_ring_steps, kInSteps), std::pair(&with_one_degree, kOneDegree)}) {
      std::optional<config::Job> job = variant(entry.plan.job);
      if (!job || entry.plan.own) continue;
      std::unique_ptr<Trial> other = trial_of(*job);
      if (other->seconds() >= entry.trial->seconds()) continue;
      entry.trial = std::move(other);
      entry.plan.job = std::move(*job);
      entry.plan.name += name;
    }
    entry.plan.seconds = entry.trial->seconds();
  });
}

// Keys take less memory where they pass along the rings in steps.
void Contest::look_closely(Entry& entry) const {
  JudgedPlan& plan = entry.plan;
  std::unique_ptr<Trial> trial = std::exchange(entry.trial, nullptr);
  finish(plan, *trial);
  if (plan.fits) return;
  entry.beyond = std::move(trial);
  std::optional<config::Job> steps = in_ring_steps(plan.job);
  if (plan.own || !steps || steps->buckets == plan.job.buckets) return;
  JudgedPlan other = plan;
  other.job = std::move(*steps);
  other.name += kInSteps;
  if (std::optional<JudgedPlan> fitting = quicker(std::move(other), std::numeric_limits<double>::infinity())) {
    plan = *std::move(fitting);
    entry.beyond = nullptr;
  }
}

// Prefetching less to keep to the budget takes no less time, so one that isn't quicker before is left as it is.
std::optional<JudgedPlan> Contest::quicker(JudgedPlan plan, double than) const {
  const planner::Request& request = planner_.request();
  Trial trial(plan.job, model_, request.hardware, *known_, request.steps);
  if (trial.seconds() >= than) return std::nullopt;
  finish(plan, trial);
  return plan.fits && plan.seconds < than ? std::optional(std::move(plan)) : std::nullopt;
}

void Contest::simulate(Entry& entry, std::function<void()> task) {
  workers_->add([&entry, task = std::move(task)] {
    try {
      task();
    } catch (const UserError& error) {
      if (!entry.plan.own) entry.failed = std::current_exception();
      entry.plan.remark = error.what();
      entry.plan.seconds = std::numeric_limits<double>::infinity();
      entry.plan.fits = false;
    } catch (...) {
      entry.failed = std::current_exception();
    }
  });
}

std::vector<Contest::Entry*> Contest::looked_at(size_t listed) {
  // Steps may choose from the buckets of as many. Otherwise two: one is known to the planner's model, and there is a
  // memory to compare.
  listed = std::max<size_t>(listed, job_.run.choose_buckets ? kJudged : 2);
  std::vector<Entry*> order, found;
  for (Entry& entry : entries_) order.push_back(&entry);
  // Prefetching less takes no less time, so plans behind those that are listed need no closer look.
  workers_->finish();
  for (Entry& entry : entries_)  // one search may leave out what the next one wants
    if (entry.left_out && entry.begin_until.load() == kAnyTime) simulate(entry);
  for (int needed = 1; needed > 0;) {
    workers_->finish();
    for (const Entry* entry : order)
      if (entry->failed) std::rethrow_exception(entry->failed);
    std::erase_if(order, [](const Entry* entry) { return entry->left_out; });
    std::ranges::stable_sort(order, {}, [](const Entry* entry) { return order_of(entry->plan); });
    needed = 0;
    found.clear();
    std::set<size_t> sizes;  // numbers of buckets
    for (size_t i = 0; i < order.size(); ++i) {
      Entry& entry = *order[i];
      const bool first = sizes.insert(entry.plan.job.buckets.size()).second;
      const bool wanted = i < listed || first || entry.plan.own;
      if (wanted) found.push_back(&entry);
      if (wanted && entry.beyond) {
        ++needed;
        simulate(entry, [&entry] { entry.plan.peak = std::exchange(entry.beyond, nullptr)->peak(); });
      }
      // Cores that are free look at the next ones, which often turn out to be wanted.
      if (!entry.trial || !(wanted || (needed > 0 && needed < workers_->count()))) continue;
      ++needed;
      simulate(entry, [this, &entry] { look_closely(entry); });
    }
  }
  return found;  // only those that are wanted: what free cores saw would depend on their number
}

std::optional<double> Contest::excess(size_t listed) {
  std::optional<double> least;
  for (const Entry* entry : looked_at(listed)) {
    const JudgedPlan& plan = entry->plan;
    if (plan.own) continue;
    if (plan.fits) return std::nullopt;
    const double times = static_cast<double>(plan.peak) / static_cast<double>(plan.job.run.memory_budget.count);
    least = std::min(least.value_or(times), times);
  }
  return least;
}

std::vector<JudgedPlan> Contest::judged(size_t listed) {
  std::vector<JudgedPlan> plans;
  for (Entry* entry : looked_at(listed)) plans.push_back(std::move(entry->plan));
  choose_pairs(plans);
  if (job_.run.choose_buckets) add_buckets_to_choose_from(plans);
  choose_codecs(plans);
  for (JudgedPlan& plan : plans) plan.name += codecs_of(plan.job.buckets);
  return plans;
}

// The quickest plan and the quickest single strategy have the better of single and paired micro-batches.
void Contest::choose_pairs(std::vector<JudgedPlan>& plans) {
  const auto single = std::ranges::find_if(plans, &JudgedPlan::single);
  std::vector<std::exception_ptr> failed(plans.size());
  for (auto plan = plans.begin(); plan != plans.end(); ++plan) {
    if ((plan != plans.begin() && plan != single) || plan->own || !plan->fits) continue;
    const planner::Account account = planner_.account(*plan->choice);
    if (account.communication <= kWorthPairs * account.seconds) continue;
    const bool has_room = account.memory_in_pairs <= planner_.memory();
    workers_->add([this, has_room, &plan = *plan, &error = failed[static_cast<size_t>(plan - plans.begin())]] {
      try {
        const JudgedPlan one_by_one = plan;
        for (const bool halved : {true, false}) {
          std::optional<config::Job> job = in_pairs(one_by_one, has_room, halved);
          if (!job) continue;
          JudgedPlan other{
              .name = one_by_one.name + (halved ? kInHalves : kInPairs), .choice = plan.choice, .job = *std::move(job)};
          if (std::optional<JudgedPlan> better = quicker(std::move(other), plan.seconds)) plan = *std::move(better);
        }
      } catch (...) {
        error = std::current_exception();
      }
    });
  }
  workers_->finish();
  for (const std::exception_ptr& error : failed)
    if (error) std::rethrow_exception(error);
  std::ranges::stable_sort(plans, {}, order_of);
}

// Chooses the codecs of the quickest plan, bucket by bucket and role by role: a codec that the planner's model took is
// left out where the simulated step takes no longer without it, and one that the model left out, or doesn't know, is
// taken where the step is quicker with it.
void Contest::choose_codecs(std::vector<JudgedPlan>& plans) {
  const config::Compression& allowed = planner_.request().allowed;
  if (plans.front().own || !plans.front().fits) return;
  JudgedPlan best = plans.front();
  for (size_t b = 0; b < best.job.buckets.size(); ++b)
    for (const Role& role : kRoles) {
      if (allowed.*role.codec == codecs::Codec::none) continue;
      JudgedPlan other = best;
      config::Compression& how = other.job.buckets[b].strategy.compression;
      codecs::Codec& codec = how.*role.codec;
      if (how == config::Compression{}) {
        how.error_feedback = allowed.error_feedback;
        how.links = allowed.links;
        how.smallest = allowed.smallest;
      }
      const bool has = codec != codecs::Codec::none;
      codec = has ? codecs::Codec::none : allowed.*role.codec;
      if (codecs_of(other.job.buckets[b]).empty()) how = {};
      // One that gains nothing is left out.
      const double than = has ? std::nextafter(best.seconds, std::numeric_limits<double>::infinity()) : best.seconds;
      if (std::optional<JudgedPlan> better = quicker(std::move(other), than)) best = *std::move(better);
    }
  plans.front() = std::move(best);
}

void Contest::add_buckets_to_choose_from(std::vector<JudgedPlan>& plans) {
  if (!plans.front().fits) return;
  JudgedPlan best = plans.front();
  for (const JudgedPlan& plan : plans)
    for (const config::Bucket& bucket : plan.job.buckets) {
      if (!plan.fits || best.job.buckets.size() >= config::kMostChosenFrom ||
          std::ranges::find(best.job.buckets, bucket) != best.job.buckets.end())
        continue;
      JudgedPlan next = best;
      next.own = false;
      next.job = with_bucket(best.job, bucket);
      next.name += fmt::format("; or to {}: {}", bucket.max_length,
                               bucket.degrees.empty() ? bucket.strategy.name : config::to_text(bucket.degrees));
      if (std::optional<JudgedPlan> better = quicker(std::move(next), (1 - kWorthABucket) * best.seconds))
        best = *std::move(better);
    }
  if (best.job.buckets.size() > plans.front().job.buckets.size()) plans.insert(plans.begin(), std::move(best));
}

planner::Found search_and_simulate(Contest& contest, const planner::Planner& planner, int top, size_t listed,
                                   int most_buckets, const std::function<std::function<double()>()>& limit,
                                   std::optional<i64> runners_up, double simulating) {
  const auto search = [&](double share) {
    planner::Found found = planner.plan(
        top, most_buckets, limit ? limit() : std::function<double()>(), runners_up,
        [&](const planner::Choice& choice) { contest.add(choice); }, share);
    for (const planner::Choice& choice : found.best) contest.add(choice);
    // The simulator may have another order of them: as many as in a search among them alone, to which this one must
    // not lose.
    for (const planner::Choice& choice : found.singles) contest.add(choice);
    if (simulating > 0) {
      std::vector<planner::Choice> best;
      for (const std::vector<planner::Choice>* of : {&found.best, &found.singles})
        if (!of->empty()) best.push_back(of->front());
      contest.leave_out(simulating, best);
    }
    return found;
  };
  planner::Found found = search(1);
  for (int times = 0; times < kMostSmaller; ++times) {
    const std::optional<double> excess = contest.excess(listed);
    if (!excess) break;
    try {
      found = search(found.share / std::max(*excess, kSmaller));
    } catch (const UserError&) {  // nothing is that small
      break;
    }
  }
  return found;
}

std::vector<report::Candidate> candidates_of(const std::vector<JudgedPlan>& plans, const JudgedPlan& chosen) {
  std::vector<report::Candidate> candidates;
  for (const JudgedPlan& plan : plans) {
    report::Candidate& candidate = candidates.emplace_back(report::Candidate{
        .name = plan.name, .chosen = &plan == &chosen, .single = plan.single(), .remark = plan.remark});
    if (!plan.remark.empty()) continue;  // it can't run
    candidate.seconds = plan.seconds;
    candidate.peak = plan.peak;
    candidate.fits = plan.fits;
  }
  return candidates;
}

ChosenPlan choose_plan(const config::Job& job, const cluster::Hardware& hardware) {
  const planner::Planner planner(request_of(job, hardware, steps_that_stand_for_all(job)));
  Contest contest(job, planner);
  search_and_simulate(contest, planner, kJudged, kJudged);  // without a limit, so what it finds is proven
  const std::vector<JudgedPlan> plans = contest.judged(kJudged);
  // One that fits, if any does; otherwise training reports what is missing.
  const JudgedPlan& best = plans.front();
  const auto single = std::ranges::find_if(plans, [](const JudgedPlan& plan) { return plan.single() && plan.fits; });
  ChosenPlan chosen{.job = best.job, .why = {}, .compared = candidates_of(plans, best)};
  chosen.why.push_back(fmt::format("{} a step predicted on {}: {}", text_of(best.seconds), hardware.name, best.name));
  if (best.single())
    chosen.why.push_back("one strategy for all documents is fastest; switching gains nothing here");
  else if (single == plans.end())
    chosen.why.push_back("no single strategy fits the memory");
  else
    chosen.why.push_back(fmt::format("the best single strategy would take {} ({:+.0f}%): {}", text_of(single->seconds),
                                     100 * (single->seconds / best.seconds - 1), single->name));
  chosen.why.push_back(fmt::format("limited by {}; the rank with the highest peak needs {} of {}",
                                   planner::limit_of(planner.account(*best.choice)), format_bytes(Bytes{best.peak}),
                                   format_bytes(Bytes{planner.memory()})));
  return chosen;
}

}  // namespace switchyard::apps
