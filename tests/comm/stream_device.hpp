// A device for tests whose streams are threads, with random delays: each thread that uses it has one. A FakeDevice does
// its work, and refuses what is not ordered.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <random>
#include <utility>

#include "fake_device.hpp"
#include "standin_nccl/stream.hpp"

namespace switchyard::comm {

class StreamDevice final : public BlockDevice {
 public:
  Block block(void* data, i64 bytes) const { return on_device(contiguous(data, bytes)); }
  Block on_device(Block block) const {
    block.device = this;
    return block;
  }

  void copy(const Block& to, const Block& from) const override {
    stream().run([this, to, from] { fake_.copy(to, from); });
  }
  void add(const Block& to, const Block& from, DType dtype) const override {
    stream().run([this, to, from, dtype] { fake_.add(to, from, dtype); });
  }
  void fill(const Block& to, unsigned char byte) const override {
    stream().run([this, to, byte] { fake_.fill(to, byte); });
  }
  Mark mark() const override {
    auto place = std::make_shared<Place>();
    stream().run([this, place] {
      const std::lock_guard lock(place->mutex);
      place->clock = fake_.mark();
      place->reached = true;
      place->changed.notify_all();
    });
    return place;
  }
  void wait_for(const Mark& mark) const override {
    stream().run([this, mark] { fake_.wait_for(clock_at(mark)); });
  }
  bool reached(const Mark& mark) const override { return static_cast<const Place*>(mark.get())->reached; }
  std::shared_ptr<std::byte> allocate(i64 bytes) const override {
    Stream* const owner = &stream();
    return {new std::byte[static_cast<size_t>(bytes)], [this, owner, bytes](std::byte* memory) {
              owner->run([this, memory, bytes] { fake_.free(memory, bytes); });
            }};
  }
  void* native_stream() const override { return static_cast<StandinStream*>(&stream()); }

  /// The calling thread waits for its stream. Throws what its work threw.
  void synchronise() const {
    clock_at(mark());
    stream().rethrow();
  }
  /// Waits, and nothing uses these bytes any more.
  void settle(const Block& block) const {
    synchronise();
    fake_.forget(block.data, (block.rows - 1) * block.stride + block.row_bytes);
  }
  /// Is freed in the order of the calling thread's stream, as memory of devices is: an error may unwind its owner while
  /// work on it is still under way.
  template <class T>
  std::shared_ptr<T> freed_in_order(std::unique_ptr<T> owned) const {
    return {owned.release(), [this](T* freed) { run([freed] { delete freed; }); }};
  }
  /// Work of the calling thread's stream.
  void run(std::function<void()> work) const { stream().run(std::move(work)); }

 private:
  struct Place {
    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<bool> reached = false;
    Mark clock;
  };

  class Stream final : public StandinStream {
   public:
    explicit Stream(const FakeDevice& fake) : fake_(fake), thread_([this] { work(); }) {}
    ~Stream() override {
      run({});
      thread_.join();
    }
    void run(std::function<void()> work) override {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
      changed_.notify_one();
    }
    std::byte* use(std::byte* data, std::int64_t bytes, bool write) override {
      fake_.use(contiguous(data, bytes), write);
      return data;
    }
    void rethrow() {
      const std::lock_guard lock(mutex_);
      if (fault_) std::rethrow_exception(fault_);
    }

   private:
    void work() {
      std::minstd_rand random;
      for (;;) {
        std::function<void()> next;
        {
          std::unique_lock lock(mutex_);
          changed_.wait(lock, [this] { return !queue_.empty(); });
          next = std::move(queue_.front());
          queue_.pop_front();
        }
        if (!next) return;
        if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
        try {
          next();
        } catch (...) {
          const std::lock_guard lock(mutex_);
          if (!fault_) fault_ = std::current_exception();
        }
      }
    }

    const FakeDevice& fake_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> queue_;
    std::exception_ptr fault_;
    std::thread thread_;
  };

  static const Mark& clock_at(const Mark& mark) {
    auto* place = static_cast<Place*>(const_cast<void*>(mark.get()));
    std::unique_lock lock(place->mutex);
    place->changed.wait(lock, [place] { return place->reached.load(); });
    return place->clock;
  }
  Stream& stream() const {
    const std::lock_guard lock(mutex_);
    auto& found = streams_[std::this_thread::get_id()];
    if (!found) found = std::make_unique<Stream>(fake_);
    return *found;
  }

  FakeDevice fake_;
  mutable std::mutex mutex_;
  mutable std::map<std::thread::id, std::unique_ptr<Stream>> streams_;
};

}  // namespace switchyard::comm
