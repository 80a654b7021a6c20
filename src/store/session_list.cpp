// The one query whose text depends on the request. It is put together from fixed pieces; whatever
// comes from outside is bound.
#include <variant>

#include "store/paging.hpp"
#include "store/rows.hpp"
#include "store/session_columns.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostConditions = 32;

class Query {
 public:
  using Value = std::variant<std::int64_t, std::string_view>;

  explicit Query(std::string text) : text_(std::move(text)) {}

  void where(std::string_view condition, std::initializer_list<Value> values) {
    text_ += std::exchange(has_condition_, true) ? " AND " : " WHERE ";
    text_ += condition;
    values_.insert(values_.end(), values);
  }
  void where_any(std::string_view column, const std::vector<std::string>& values) {
    std::string marks;
    for (std::size_t i = 0; i < values.size(); ++i) marks += i == 0 ? "?" : ", ?";
    where(std::string(column) + " IN (" + marks + ")", {});
    values_.insert(values_.end(), values.begin(), values.end());
  }
  void end(std::string_view text, Value value) {
    text_ += text;
    values_.push_back(value);
  }

  Result<Statement> prepare(Database& database) const {
    Statement statement = TRY(database.query(text_));
    for (const Value& value : values_)
      TRY(std::visit([&](auto v) { return statement.bind(v); }, value));
    return statement;
  }

 private:
  std::string text_;
  std::vector<Value> values_;
  bool has_condition_ = false;
};

void add_filter(Query& query, const SessionFilter& filter) {
  if (filter.visible_to)
    query.where("(owner = ? OR id IN (SELECT session FROM session_shares WHERE key_id = ?))",
                {*filter.visible_to, *filter.visible_to});
  if (!filter.states.empty()) query.where_any("state", filter.states);
  if (!filter.environment.empty()) query.where("environment = ?", {filter.environment});
  if (!filter.provider.empty()) query.where("provider = ?", {filter.provider});
  if (filter.created_after_ms) query.where("created_ms > ?", {*filter.created_after_ms});
  for (const auto& [name, value] : filter.labels)
    query.where("id IN (SELECT session FROM session_labels WHERE name = ? AND value = ?)",
                {name, value});
}

Result<void> check(const SessionFilter& filter) {
  if (filter.states.size() > kMostConditions || filter.labels.size() > kMostConditions)
    return fail(Errc::invalid, "too many states or labels to look for");
  return {};
}

}  // namespace

Result<std::int64_t> count_sessions(Database& database, const SessionFilter& filter) {
  TRY(check(filter));
  Query query("SELECT count(*) FROM sessions");
  add_filter(query, filter);
  Statement statement = TRY(query.prepare(database));
  std::int64_t count = 0;
  if (TRY(statement.next())) statement.read(count);
  return count;
}

Result<SessionPage> list_sessions(Database& database, const SessionFilter& filter) {
  std::int64_t limit = TRY(checked_limit(filter.limit));
  TRY(check(filter));
  Position last;
  if (!filter.cursor.empty()) last = TRY(from_cursor(filter.cursor));

  Query query("SELECT " + std::string(kSessionColumns) + " FROM sessions");
  add_filter(query, filter);
  bool newest_first = filter.order == SessionFilter::Order::newest_first;
  // The first half alone is what the index understands.
  if (!filter.cursor.empty())
    query.where(newest_first ? "created_ms <= ? AND (created_ms < ? OR id > ?)"
                             : "created_ms >= ? AND (created_ms > ? OR id > ?)",
                {last.created_ms, last.created_ms, last.id});
  // One more than asked for tells whether there is another page.
  query.end(
      newest_first ? " ORDER BY created_ms DESC, id LIMIT ?" : " ORDER BY created_ms, id LIMIT ?",
      limit + 1);

  Statement statement = TRY(query.prepare(database));
  SessionPage page{TRY(remaining_rows(statement, read_session)), {}};
  if (page.sessions.size() > static_cast<std::size_t>(limit)) {
    page.sessions.pop_back();
    page.cursor = to_cursor({page.sessions.back().created_ms, page.sessions.back().id});
  }
  return page;
}

}  // namespace asr
