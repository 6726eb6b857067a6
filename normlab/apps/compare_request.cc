#include "normlab/apps/compare_request.h"

#include <algorithm>
#include <map>

#include "normlab/apps/command.h"
#include "normlab/base/error.h"
#include "normlab/base/text.h"
#include "normlab/norms/norm_type.h"
#include "normlab/train/run_record.h"

namespace normlab::apps {
namespace {

// The article's norms, its first table's order, and none.
constexpr const char* kDefaultNorms =
    "handrolled_layernorm,fused_layernorm,handrolled_rmsnorm,fused_rmsnorm,no_norm";
constexpr int64_t kMostSeeds = 10000, kMostLooks = 100, kMostJobs = 4096;

std::vector<VariedKey> VariedKeys(const CompareArguments& arguments,
                                  const std::vector<Assignment>& assignments, const TrainConfig& base) {
  std::vector<VariedKey> keys;
  const bool by_default = !arguments.norms && arguments.vary.empty();
  if (by_default && arguments.aa) return {{.key = "norm_type", .values = {base.model.norm_type}}};
  if (by_default)
    keys.push_back(ParseVariedKey(fmt::format("norm_type={}", kDefaultNorms)));
  else if (arguments.norms)
    keys.push_back(ParseVariedKey(fmt::format("norm_type={}", *arguments.norms)));
  for (const std::string& text : arguments.vary) keys.push_back(ParseVariedKey(text));
  for (const VariedKey& key : keys)
    for (const Assignment& assignment : assignments)
      if (assignment.key == key.key)
        throw UsageError(
            fmt::format("{} is set by {} and varies too; {}", key.key, assignment.option,
                        by_default ? "name the norms to compare with --norms" : "do one of the two"));
  return keys;
}

std::optional<std::vector<uint64_t>> SeedsAsked(const CompareArguments& arguments) {
  if (arguments.seeds && arguments.seed_list)
    throw UsageError("--seeds and --seed-list are two ways to say one thing; give one of them");
  if (arguments.seed_list && arguments.aa)
    throw UsageError("--aa gives its two sides different seeds by itself; give --seeds N, not --seed-list");
  if (arguments.seed_list) return ParseSeeds(*arguments.seed_list);
  if (!arguments.seeds) return std::nullopt;
  std::vector<uint64_t> seeds;
  const int64_t count = WholeNumber("--seeds", *arguments.seeds, 1, kMostSeeds);
  for (int64_t seed = 1; seed <= count; ++seed) seeds.push_back(static_cast<uint64_t>(seed));
  return seeds;
}

std::vector<std::string> WithinKeys(const std::string& text) {
  std::vector<std::string> keys;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    keys.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return keys;
}

}  // namespace

CellShare ShareOf(const CompareArguments& arguments, int threads) {
  if (!arguments.jobs) return {.threads = threads};
  const auto jobs = static_cast<int>(WholeNumber("--jobs", *arguments.jobs, 1, kMostJobs));
  const CellShare share = DivideThreads(threads, jobs);
  if (threads % jobs != 0)
    PrintNote(fmt::format("{} cells at a time with {} each: {} of {} threads stay unused", jobs,
                          Counted(share.threads, "thread"), threads % jobs, threads));
  return share;
}

Grid MakeCompareGrid(const CompareArguments& arguments) {
  const std::vector<Assignment> assignments = Assignments(arguments.run);
  for (const Assignment& assignment : assignments)
    if (assignment.key == "seed")
      throw UsageError("every variant is trained with every seed; use --seeds or --seed-list");
  const TrainConfig base = MakeConfig(arguments.run, assignments);
  Grid grid = MakeGrid(base, VariedKeys(arguments, assignments, base));
  if (arguments.aa) {
    const std::string side = arguments.baseline ? VariantName(*arguments.baseline, grid) : "";
    grid = AaGrid(std::move(grid), side);
  }
  for (const std::string& note : grid.notes) PrintNote(note);
  if (grid.variants.size() < 2)
    Fail(
        "compare needs two variants, and {} is the only one; name another, give --aa to compare it with "
        "itself, "
        "or use `normlab train`",
        grid.variants[0].name.empty() ? "this" : grid.variants[0].name);
  return grid;
}

StudyRequest MakeRequest(const CompareArguments& arguments, const TokenSource& tokens, Grid grid,
                         const Device& device, int jobs) {
  StudyRequest request{.seeds = SeedsAsked(arguments),
                       .data = DataIdentity(tokens),
                       .machine = DescribeMachine(device, jobs),
                       .started_at = UtcNow()};
  if (arguments.baseline) request.baseline = VariantName(*arguments.baseline, grid);
  if (arguments.within) request.within = WithinKeys(*arguments.within);
  request.aa = arguments.aa;
  if (arguments.margin) {
    request.margin_nats = NumberFromZero("--margin", *arguments.margin);
    if (request.margin_nats > 100)
      throw UsageError(fmt::format("--margin is {}; it must be at most 100 nats", *arguments.margin));
  }
  if (arguments.speed_margin) request.speed_margin = SpeedMargin(*arguments.speed_margin);
  if (arguments.looks)
    request.looks = static_cast<int>(WholeNumber("--looks", *arguments.looks, 1, kMostLooks));
  for (const Variant& variant : grid.variants)
    request.norm_implementations.push_back(CheckRun(variant.config, tokens, device));
  request.grid = std::move(grid);
  return request;
}

std::pair<std::string, MemoryPlan> CheckMemoryOf(const Grid& grid, const TokenSource& tokens, CellShare share,
                                                 const std::optional<AvailableMemory>& available) {
  std::pair<std::string, MemoryPlan> largest;
  for (const Variant& variant : grid.variants) {
    MemoryPlan plan;
    try {
      plan = CheckMemory(variant.config, tokens, share.threads, available, share.jobs);
    } catch (const Error& error) {
      Fail("variant {}: {}", variant.name, error.what());
    }
    if (largest.first.empty() || plan.total() > largest.second.total()) largest = {variant.name, plan};
  }
  return largest;
}

void NoteSameCode(const StudyRequest& request) {
  std::map<std::string, std::string> first_of;  // by everything that runs
  for (size_t v = 0; v < request.grid.variants.size(); ++v) {
    const Variant& variant = request.grid.variants[v];
    Json runs = ToJson(WithoutUnusedNormOptions(variant.config));
    runs["norm_type"] = InfoOf(variant.config.model.Norm().kind).name;
    const std::string& implementation = request.norm_implementations[v];
    const auto [same, is_new] = first_of.emplace(implementation + DumpJson(runs), variant.name);
    if (!is_new)
      PrintNote(fmt::format("{} and {} run the same code here ({}): they differ by chance alone",
                            same->second, variant.name, implementation));
  }
}

}  // namespace normlab::apps
