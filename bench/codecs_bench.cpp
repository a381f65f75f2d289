// Rates of the codecs on one core (bench/codecs_table.py makes a table of them). Bytes are those of the elements before
// they are encoded, of gradients as they are: normal numbers whose size differs from row to row.

#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <vector>

#include "codecs/codec.hpp"

namespace switchyard::codecs {
namespace {

std::vector<float> gradients(i64 n) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  float size = 1;
  for (size_t i = 0; i < x.size(); ++i) {
    if (i % 1024 == 0) size = 1e-3F * std::exp(normal(random));
    x[i] = size * normal(random);
  }
  return x;
}

Elements matrix(std::vector<float>& x) {
  return {.data = reinterpret_cast<std::byte*>(x.data()), .columns = static_cast<i64>(x.size())};
}

void count(benchmark::State& state, i64 elements, i64 message) {
  state.SetBytesProcessed(state.iterations() * elements * 4);
  state.counters["bits_per_element"] = 8.0 * static_cast<double>(message) / static_cast<double>(elements);
  state.SetLabel(std::string(name_of(static_cast<Codec>(state.range(0)))));
}

void encoding(benchmark::State& state) {
  const auto codec = static_cast<Codec>(state.range(0));
  std::vector<float> x = gradients(state.range(1));
  std::vector<std::byte> message(static_cast<size_t>(encoded_bytes(codec, DType::f32, state.range(1))));
  i64 bytes = 0;
  for (auto _ : state) benchmark::DoNotOptimize(bytes = encode(codec, matrix(x), message));
  count(state, state.range(1), bytes);
}

void decoding_and_adding(benchmark::State& state) {
  const auto codec = static_cast<Codec>(state.range(0));
  std::vector<float> x = gradients(state.range(1)), sum(x.size());
  std::vector<std::byte> message(static_cast<size_t>(encoded_bytes(codec, DType::f32, state.range(1))));
  message.resize(static_cast<size_t>(encode(codec, matrix(x), message)));
  for (auto _ : state) {
    decode(codec, message, matrix(sum), true);
    benchmark::ClobberMemory();
  }
  count(state, state.range(1), static_cast<i64>(message.size()));
}

void of_all_codecs(benchmark::internal::Benchmark* bench) {
  for (int codec = 0; codec < kCodecs; ++codec)
    for (const i64 elements : {i64{64}, i64{256}, i64{1} << 10, i64{1} << 12, i64{1} << 14, i64{1} << 20})
      bench->Args({codec, elements});
}

BENCHMARK(encoding)->Apply(of_all_codecs);
BENCHMARK(decoding_and_adding)->Apply(of_all_codecs);

}  // namespace
}  // namespace switchyard::codecs
