#include <cmath>

#include "normlab/study/export.h"
#include "normlab/study/headline.h"

#include "normlab/study/insides.h"

namespace normlab {
namespace {

template <class T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}
Json OrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json StudyJson(const StudyResults& results) {
  const StudyPlan& plan = results.plan;
  Json json;
  json["varied_keys"] = plan.varied_keys;
  json["baseline"] = plan.baseline;
  json["within"] = plan.within;
  json["aa"] = plan.aa;
  json["seeds"] = plan.seeds;
  json["alpha"] = ToJson(plan.alpha);
  json["margin_nats"] = ToJson(plan.margin_nats);
  json["speed_margin"] = ToJson(plan.speed_margin);
  json["looks"] = plan.looks;
  json["look"] = plan.look();
  json["exploratory"] = plan.look() > plan.looks;
  json["complete"] = results.counts.complete();
  json["machines_differ"] = results.machines_differ;
  json["counts"] = ToJson(results.counts);
  json["data"] = plan.data;
  return json;
}

Json SpikesJson(const SpikeSummary& spikes) {
  return {{"count", spikes.spikes},
          {"runs", spikes.runs},
          {"runs_with_spikes", spikes.runs_with_spikes},
          {"not_recovered", spikes.not_recovered},
          {"median_recovery", ToJson(spikes.median_recovery)}};
}

Json VariantJson(const PlannedVariant& planned, const VariantSummary& summary) {
  const TrainConfig& config = planned.variant.config;
  Json json;
  json["name"] = planned.variant.name;
  json["folder"] = FolderName(planned.variant.name);
  json["varied"] = planned.variant.varied;
  json["seeds"] = planned.seeds.empty() ? Json() : Json(planned.seeds);
  json["norm_type"] = config.model.norm_type;
  json["norm_implementation"] = planned.norm_implementation;
  json["norm_eps"] = ToJson(config.model.NormEps());
  json["parameters"] = planned.variant.parameters;
  json["norm_parameters"] = planned.variant.norm_parameters;
  json["counts"] = ToJson(summary.counts);
  json["mean_test_loss"] = ToJson(summary.test_loss);
  json["sd_test_loss"] = ToJson(summary.test_loss_sd);
  const std::optional<stats::Interval>& interval = summary.test_loss_interval;
  json["mean_test_loss_ci_low"] = interval ? ToJson(interval->low) : Json();
  json["mean_test_loss_ci_high"] = interval ? ToJson(interval->high) : Json();
  json["mean_time_s"] = ToJson(summary.time_s);
  json["mean_tokens_per_s"] = ToJson(summary.tokens_per_s);
  json["mean_products_share"] = ToJson(summary.products_share);
  json["mean_peak_bytes"] = ToJson(summary.peak_bytes);
  Json full = ToJson(config);
  full.erase("seed");
  json["config"] = std::move(full);
  return json;
}

Json CellJson(const StudyPlan& plan, const Cell& cell) {
  const bool finished = IsFinished(cell.status);
  const RunRecord none;
  const RunRecord& record = finished ? *cell.record : none;
  const auto known = [finished](Json value) { return finished ? std::move(value) : Json(); };

  Json json;
  json["variant"] = plan.variants[cell.variant].variant.name;
  json["seed"] = plan.Seed(cell.variant, cell.seed);
  json["status"] = Name(cell.status);
  json["reason"] = OrNull(cell.reason);
  json["test_loss"] = ToJson(record.test_loss);
  json["train_loss"] = ToJson(record.train_loss);
  json["time_s"] = known(ToJson(record.time_s));
  json["tokens"] = known(record.tokens);
  json["tokens_per_s"] = ToJson(record.tokens_per_s);
  json["products_share"] = ToJson(record.products_share);
  json["peak_bytes"] = known(record.peak_bytes);
  json["steps_done"] = known(record.steps_done);
  json["norm_implementation"] = known(record.norm_implementation);
  json["threads"] = known(record.machine.threads);
  json["jobs"] = known(record.machine.jobs);
  json["cpu"] = known(record.machine.cpu);
  json["started_at"] = known(record.started_at);
  json["diverged_at_step"] = record.divergence ? Json(record.divergence->step + 1) : Json();
  json["diverged_tensor"] = record.divergence ? OrNull(record.divergence->tensor) : Json();
  Json blocks = Json::array();
  for (const double loss : record.test_block_losses) blocks.push_back(ToJson(loss));
  json["test_block_losses"] = known(std::move(blocks));
  Json spikes = Json::array();
  for (const SpikeRecord& spike : record.spikes) spikes.push_back(ToJson(spike));
  json["spikes"] = known(std::move(spikes));
  json["inside"] = record.inside;
  return json;
}

Json ComparisonJson(const StudyPlan& plan, const MetricComparison& comparison) {
  const stats::Comparison& c = comparison.result;
  const bool ratio = comparison.rule.log_ratio;
  std::optional<double> difference = c.difference;
  if (!difference && c.mean_variant && c.mean_baseline) difference = *c.mean_variant - *c.mean_baseline;
  const bool decided = comparison.judged && c.verdict != stats::Verdict::kNone;

  Json json;
  json["variant"] = plan.variants[comparison.variant].variant.name;
  json["baseline"] = plan.variants[comparison.baseline].variant.name;
  json["metric"] = Name(comparison.metric);
  json["verdict"] = decided ? Json(stats::VerdictName(c.verdict)) : Json();
  json["explanation"] = OrNull(comparison.explanation);
  json["reason"] = OrNull(c.reason);
  json["interim"] = comparison.interim;
  json["exploratory"] = c.exploratory;
  json["n"] = c.n;
  json["pairs_left_out"] = comparison.left_out;
  json["mean_variant"] = ToJson(c.mean_variant);
  json["mean_baseline"] = ToJson(c.mean_baseline);
  json["difference"] = ToJson(difference);
  json["ratio"] = ToJson(c.ratio);
  json["interval_of"] = !comparison.judged ? Json() : Json(ratio ? "ratio" : "difference");
  json["ci_low"] = ToJson(c.ci_low);
  json["ci_high"] = ToJson(c.ci_high);
  json["equivalence_ci_low"] = ToJson(c.equivalence_ci_low);
  json["equivalence_ci_high"] = ToJson(c.equivalence_ci_high);
  const bool text = comparison.text && comparison.text->interval;
  json["text_ci_low"] = text ? ToJson(comparison.text->interval->low) : Json();
  json["text_ci_high"] = text ? ToJson(comparison.text->interval->high) : Json();
  json["seed_sd"] = comparison.text ? ToJson(std::sqrt(comparison.text->var_seed)) : Json();
  json["text_block_sd"] = comparison.text ? ToJson(std::sqrt(comparison.text->var_block)) : Json();
  json["residual_sd"] = comparison.text ? ToJson(std::sqrt(comparison.text->var_residual)) : Json();
  json["text_blocks"] = comparison.text ? Json(comparison.text_blocks) : Json();
  json["confidence"] = comparison.judged ? ToJson(c.confidence) : Json();
  json["margin"] = comparison.judged ? ToJson(comparison.rule.margin) : Json();
  json["p_value"] = ToJson(c.p_value);
  json["holm_p"] = ToJson(c.holm_p);
  json["equivalence_p"] = ToJson(c.equivalence_p);
  json["sign_flip_p"] = ToJson(c.sign_flip_p);
  json["wilcoxon_p"] = ToJson(c.wilcoxon_p);
  json["test"] = OrNull(c.test);
  json["sd"] = ToJson(c.sd);
  json["bca_low"] = ToJson(c.bca_low);
  json["bca_high"] = ToJson(c.bca_high);
  json["hedges_g"] = ToJson(c.hedges_g);
  json["smallest_detectable"] = ToJson(c.smallest_detectable);
  json["seeds_needed"] = OrNull(c.seeds_needed);
  json["seeds_needed_low"] = OrNull(c.seeds_needed_low);
  json["seeds_needed_high"] = OrNull(c.seeds_needed_high);
  json["far_out_seeds"] = Json::array();
  for (const size_t s : c.far_out) json["far_out_seeds"].push_back(plan.Seed(comparison.variant, s));
  if (comparison.judged) {
    json["runs_variant"] = c.runs_variant;
    json["runs_baseline"] = c.runs_baseline;
    json["diverged_variant"] = c.diverged_variant;
    json["diverged_baseline"] = c.diverged_baseline;
    json["diverged_variant_low"] = ToJson(c.diverged_variant_low);
    json["diverged_variant_high"] = ToJson(c.diverged_variant_high);
    json["diverged_baseline_low"] = ToJson(c.diverged_baseline_low);
    json["diverged_baseline_high"] = ToJson(c.diverged_baseline_high);
    json["divergence_p"] = ToJson(c.divergence_p);
  }
  return json;
}

}  // namespace

Json ToJson(const Counts& counts) {
  return {{"planned", counts.planned},
          {"done", counts.done},
          {"diverged", counts.diverged},
          {"failed", counts.failed},
          {"missing", counts.missing}};
}

Json ResultsJson(const StudyResults& results) {
  Json json;
  json["schema_version"] = kResultsSchemaVersion;
  json["machine"] = ToJson(results.machine.value_or(results.plan.machine));
  json["headline"] = OrNull(Headline(results));
  json["study"] = StudyJson(results);
  json["variants"] = Json::array();
  for (size_t v = 0; v < results.variants.size(); ++v) {
    Json variant = VariantJson(results.plan.variants[v], results.variants[v]);
    variant["spikes"] = SpikesJson(SummarizeSpikes(results.cells, v));
    variant["median_mean_share"] = ToJson(MedianMeanShare(results.cells, v));
    json["variants"].push_back(std::move(variant));
  }
  json["cells"] = Json::array();
  for (const Cell& cell : results.cells) json["cells"].push_back(CellJson(results.plan, cell));
  json["comparisons"] = Json::array();
  for (const MetricComparison& comparison : results.comparisons)
    json["comparisons"].push_back(ComparisonJson(results.plan, comparison));
  json["duel"] = results.duel ? ToJson(*results.duel) : Json();
  return json;
}

}  // namespace normlab
