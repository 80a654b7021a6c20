#include "net/http_pool.hpp"

#include <curl/curl.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "net/bell.hpp"
#include "net/curl_start.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostAhead = 256 * 1024;  // of an answer that nobody has asked for yet
constexpr std::size_t kMostUnsent = 256 * 1024;
constexpr std::size_t kMostHead = 64 * 1024;

using List = std::unique_ptr<curl_slist, void (*)(curl_slist*)>;

// What both threads know of a transfer.
struct Shared : std::enable_shared_from_this<Shared> {
  explicit Shared(asio::any_io_executor on) : executor(std::move(on)), changed(executor) {}

  asio::any_io_executor executor;
  Bell changed;  // on the executor only

  std::mutex mutex;
  bool rung = false;
  HttpTransfer::Head head;
  bool has_head = false;
  std::string in;
  bool in_waits = false;  // curl has more than there is room for
  std::string out;
  bool out_ended = false;
  bool out_waits = false;  // curl wants more than there is
  bool over = false;
  std::optional<Error> error;
  bool never_sent = false;

  // With the mutex held, on curl's thread.
  void ring() {
    if (std::exchange(rung, true)) return;
    asio::post(executor, [self = shared_from_this()] {
      {
        std::lock_guard lock(self->mutex);
        self->rung = false;
      }
      self->changed.ring();
    });
  }
  void finish(std::optional<Error> why, bool unsent) {
    std::lock_guard lock(mutex);
    if (over) return;
    over = true;
    error = std::move(why);
    never_sent = unsent;
    ring();
  }
};

Error explain(CURLcode code, const char* detail) {
  std::string what = *detail != '\0' ? detail : ::curl_easy_strerror(code);
  switch (code) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
      return Error(Errc::os, "no server answers there");
    case CURLE_OPERATION_TIMEDOUT:
      return Error(Errc::timeout, "the server did not answer in time");
    case CURLE_PEER_FAILED_VERIFICATION:
      return Error(Errc::os, "the server's certificate is not trusted");
    default:
      return Error(Errc::os, "the connection failed: " + what);
  }
}

// One transfer as curl has it; on curl's thread alone once it has begun.
struct Job {
  Job(std::shared_ptr<Shared> with, PooledRequest what)
      : shared(std::move(with)), request(std::move(what)) {}
  ~Job() { ::curl_easy_cleanup(curl); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  std::shared_ptr<Shared> shared;
  PooledRequest request;
  CURL* curl = nullptr;
  List headers{nullptr, ::curl_slist_free_all};
  char detail[CURL_ERROR_SIZE] = "";
  std::size_t sent = 0;  // of request.body
  std::size_t head_bytes = 0;

  void prepare(const HttpPoolSettings& settings);
};

std::size_t on_header(char* data, std::size_t size, std::size_t count, void* user) {
  Job& job = *static_cast<Job*>(user);
  std::string_view line(data, size * count);
  job.head_bytes += line.size();
  if (job.head_bytes > kMostHead) return 0;
  std::lock_guard lock(job.shared->mutex);
  HttpTransfer::Head& head = job.shared->head;
  if (line.starts_with("HTTP/")) {
    std::size_t blank = line.find(' ');
    std::string number(blank == std::string_view::npos ? "" : line.substr(blank + 1, 3));
    head.status = static_cast<unsigned>(std::strtoul(number.c_str(), nullptr, 10));
    head.headers = Headers();
    return line.size();
  }
  if (std::size_t colon = line.find(':'); colon != std::string_view::npos) {
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && (value.back() == '\n' || value.back() == '\r' || value.back() == ' '))
      value.remove_suffix(1);
    while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
    head.headers.add(std::string(line.substr(0, colon)), std::string(value));
  } else if (head.status >= 200 && !job.shared->has_head) {
    job.shared->has_head = true;
    job.shared->ring();
  }
  return line.size();
}

std::size_t on_body(char* data, std::size_t size, std::size_t count, void* user) {
  Shared& shared = *static_cast<Job*>(user)->shared;
  std::lock_guard lock(shared.mutex);
  if (shared.over) return 0;  // called off, and not dropped yet
  if (shared.in.size() >= kMostAhead) {
    shared.in_waits = true;
    return CURL_WRITEFUNC_PAUSE;
  }
  shared.in.append(data, size * count);
  shared.ring();
  return size * count;
}

std::size_t on_read(char* buffer, std::size_t size, std::size_t count, void* user) {
  Job& job = *static_cast<Job*>(user);
  std::size_t room = size * count;
  if (!job.request.body_follows) {
    std::size_t n = std::min(room, job.request.body.size() - job.sent);
    std::memcpy(buffer, job.request.body.data() + job.sent, n);
    job.sent += n;
    return n;
  }
  Shared& shared = *job.shared;
  std::lock_guard lock(shared.mutex);
  if (shared.out.empty()) {
    if (shared.out_ended) return 0;
    shared.out_waits = true;
    return CURL_READFUNC_PAUSE;
  }
  std::size_t n = std::min(room, shared.out.size());
  std::memcpy(buffer, shared.out.data(), n);
  shared.out.erase(0, n);
  shared.ring();
  return n;
}

void Job::prepare(const HttpPoolSettings& settings) {
  curl = ::curl_easy_init();
  if (!curl) return;
  auto set = [this](CURLoption option, auto value) { ::curl_easy_setopt(curl, option, value); };
  set(CURLOPT_PRIVATE, static_cast<void*>(this));
  set(CURLOPT_ERRORBUFFER, detail);
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.connect_time.count()));
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(request.total_time.count()));
  if (request.silence.count() > 0) {
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.silence.count()));
  }
  set(CURLOPT_MAXAGE_CONN, static_cast<long>(settings.idle_time.count()));
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_HEADERFUNCTION, on_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(this));
  set(CURLOPT_WRITEFUNCTION, on_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(this));
  if (!request.unix_socket.empty()) set(CURLOPT_UNIX_SOCKET_PATH, request.unix_socket.c_str());
  if (request.method == "HEAD") set(CURLOPT_NOBODY, 1L);
  bool has_body = request.body_follows || !request.body.empty();
  if (has_body && request.may_repeat && !request.body_follows) {
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(CURLOPT_POSTFIELDS, request.body.data());
  } else if (has_body) {
    // From a function that cannot go back: curl has no way to send it twice.
    set(CURLOPT_POST, 1L);
    set(CURLOPT_READFUNCTION, on_read);
    set(CURLOPT_READDATA, static_cast<void*>(this));
    set(CURLOPT_POSTFIELDSIZE_LARGE,
        request.body_follows ? curl_off_t{-1} : static_cast<curl_off_t>(request.body.size()));
  } else if (request.method == "POST" || request.method == "PUT") {
    set(CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t{0});
    set(CURLOPT_POSTFIELDS, "");
  }
  set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  curl_slist* raw = ::curl_slist_append(nullptr, "Expect:");
  if (request.body_follows) raw = ::curl_slist_append(raw, "Transfer-Encoding: chunked");
  for (const auto& [name, value] : request.headers.all())
    raw = ::curl_slist_append(raw, (name + ": " + value).c_str());
  headers.reset(raw);
  set(CURLOPT_HTTPHEADER, headers.get());
  // Without a body nothing keeps curl from sending it again but a connection of its own.
  if (!has_body && !request.may_repeat && request.method != "GET" && request.method != "HEAD")
    set(CURLOPT_FRESH_CONNECT, 1L);
}

}  // namespace

// Curl's thread, and what it is told to do.
class HttpPool::Worker {
 public:
  explicit Worker(HttpPoolSettings settings) : settings_(settings) {
    start_curl();
    multi_ = ::curl_multi_init();
    ::curl_multi_setopt(multi_, CURLMOPT_MAX_TOTAL_CONNECTIONS,
                        static_cast<long>(settings.most_connections));
    ::curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(settings.most_idle));
    thread_ = std::thread([this] { run(); });
  }
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void stop() {
    if (!thread_.joinable()) return;
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    ::curl_multi_wakeup(multi_);
    thread_.join();
    ::curl_multi_cleanup(multi_);
  }

  void tell(std::function<void()> what) {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      told_.push_back(std::move(what));
    }
    ::curl_multi_wakeup(multi_);
  }

  // The following on its own thread.
  void begin(const std::shared_ptr<Job>& job) {
    {
      std::lock_guard lock(job->shared->mutex);
      if (job->shared->over) return;  // called off before
    }
    job->prepare(settings_);
    if (!job->curl || ::curl_multi_add_handle(multi_, job->curl) != CURLM_OK) {
      job->shared->finish(Error(Errc::internal, "curl cannot be used"), true);
      return;
    }
    jobs_.insert(job);
  }
  void go_on(const std::shared_ptr<Job>& job) {
    if (jobs_.contains(job)) ::curl_easy_pause(job->curl, CURLPAUSE_CONT);
  }
  void drop(const std::shared_ptr<Job>& job) {
    if (jobs_.erase(job) != 0) ::curl_multi_remove_handle(multi_, job->curl);
  }

 private:
  void run() {
    for (;;) {
      std::deque<std::function<void()>> told;
      {
        std::lock_guard lock(mutex_);
        if (stopping_) break;
        told.swap(told_);
      }
      for (auto& what : told) what();
      int running = 0;
      ::curl_multi_perform(multi_, &running);
      settle();
      ::curl_multi_poll(multi_, nullptr, 0, 1000, nullptr);
    }
    for (const auto& job : jobs_) {
      ::curl_multi_remove_handle(multi_, job->curl);
      job->shared->finish(Error(Errc::gone, "the server stops"), false);
    }
    jobs_.clear();
    told_.clear();
  }

  void settle() {
    int left = 0;
    while (CURLMsg* message = ::curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      CURLcode code = message->data.result;
      char* own = nullptr;
      ::curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &own);
      auto* raw = reinterpret_cast<Job*>(own);
      auto found =
          std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& j) { return j.get() == raw; });
      if (found == jobs_.end()) continue;
      std::shared_ptr<Job> job = *found;
      long request_bytes = 0;
      ::curl_easy_getinfo(job->curl, CURLINFO_REQUEST_SIZE, &request_bytes);
      ::curl_multi_remove_handle(multi_, job->curl);
      jobs_.erase(found);
      if (code == CURLE_OK)
        job->shared->finish(std::nullopt, false);
      else
        job->shared->finish(explain(code, job->detail), request_bytes == 0);
    }
  }

  HttpPoolSettings settings_;
  CURLM* multi_ = nullptr;
  std::set<std::shared_ptr<Job>> jobs_;
  std::mutex mutex_;
  bool stopping_ = false;
  std::deque<std::function<void()>> told_;
  std::thread thread_;
};

namespace {

class Transfer final : public HttpTransfer {
 public:
  using Tell = std::function<void(std::function<void()>)>;
  struct Steps {
    std::function<void()> go_on;
    std::function<void()> drop;
  };
  Transfer(std::shared_ptr<Shared> shared, Steps steps)
      : shared_(std::move(shared)), steps_(std::move(steps)) {}
  ~Transfer() override { cancel(); }

  asio::awaitable<Result<Head>> head() override {
    auto shared = shared_;
    for (;;) {
      {
        std::lock_guard lock(shared->mutex);
        if (shared->has_head) co_return shared->head;
        if (shared->error) co_return fail(*shared->error);
        if (shared->over) co_return fail(Errc::os, "the server closed the connection");
      }
      co_await shared->changed.wait();
    }
  }

  asio::awaitable<Result<std::string>> read() override {
    auto shared = shared_;
    for (;;) {
      {
        std::lock_guard lock(shared->mutex);
        if (!shared->in.empty()) {
          std::string part = std::exchange(shared->in, {});
          if (std::exchange(shared->in_waits, false)) steps_.go_on();
          co_return part;
        }
        if (shared->error) co_return fail(*shared->error);
        if (shared->over) co_return std::string();
      }
      co_await shared->changed.wait();
    }
  }

  asio::awaitable<Result<void>> write(std::string data) override {
    auto shared = shared_;
    for (;;) {
      {
        std::lock_guard lock(shared->mutex);
        // An answer that comes before the end of the question is told by head().
        if (shared->error) co_return fail(*shared->error);
        if (shared->over) co_return Result<void>();
        if (shared->out.size() < kMostUnsent) {
          shared->out += data;
          if (std::exchange(shared->out_waits, false)) steps_.go_on();
          co_return Result<void>();
        }
      }
      co_await shared->changed.wait();
    }
  }

  void end_body() override {
    std::lock_guard lock(shared_->mutex);
    shared_->out_ended = true;
    if (std::exchange(shared_->out_waits, false)) steps_.go_on();
  }

  void cancel() override {
    {
      std::lock_guard lock(shared_->mutex);
      if (shared_->over) return;
      shared_->over = true;
      shared_->error = Error(Errc::gone, "it was called off");
      shared_->in.clear();
    }
    steps_.drop();
    shared_->changed.ring();
  }

  bool was_never_sent() const override {
    std::lock_guard lock(shared_->mutex);
    return shared_->never_sent;
  }

 private:
  std::shared_ptr<Shared> shared_;
  Steps steps_;
};

}  // namespace

HttpPool::HttpPool(asio::any_io_executor executor, HttpPoolSettings settings)
    : executor_(std::move(executor)), worker_(std::make_shared<Worker>(settings)) {}

HttpPool::~HttpPool() { worker_->stop(); }

void HttpPool::stop() { worker_->stop(); }

std::shared_ptr<HttpTransfer> HttpPool::open(PooledRequest request) {
  auto shared = std::make_shared<Shared>(executor_);
  auto job = std::make_shared<Job>(shared, std::move(request));
  // Transfers may outlive the pool: nothing is told to a thread that has ended.
  std::weak_ptr<Worker> weak = worker_;
  auto with = [weak, job](void (Worker::*step)(const std::shared_ptr<Job>&)) {
    return [weak, job, step] {
      auto worker = weak.lock();
      if (worker) worker->tell([raw = worker.get(), job, step] { (raw->*step)(job); });
    };
  };
  with (&Worker::begin)();
  return std::make_shared<Transfer>(std::move(shared),
                                    Transfer::Steps{with(&Worker::go_on), with(&Worker::drop)});
}

asio::awaitable<Result<PooledResponse>> read_all(std::shared_ptr<HttpTransfer> transfer,
                                                 std::size_t most) {
  auto asking = transfer->head();
  HttpTransfer::Head head = CO_TRY(co_await std::move(asking));
  PooledResponse response{head.status, std::move(head.headers), {}};
  for (;;) {
    auto reading = transfer->read();
    std::string part = CO_TRY(co_await std::move(reading));
    if (part.empty()) co_return response;
    if (response.body.size() + part.size() > most)
      co_return fail(Errc::exhausted, "the answer is too large");
    response.body += part;
  }
}

}  // namespace asr
