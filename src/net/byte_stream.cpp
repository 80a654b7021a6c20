#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cstring>

#include "net/http_connection.hpp"

namespace asr {

namespace {

template <class Stream>
class TakenStream final : public ByteStream {
 public:
  TakenStream(Stream stream, std::string already_read)
      : stream_(std::move(stream)), rest_(std::move(already_read)) {}

  asio::awaitable<Result<std::size_t>> read_some(std::span<char> buffer) override {
    if (!rest_.empty()) {
      std::size_t n = std::min(rest_.size(), buffer.size());
      std::memcpy(buffer.data(), rest_.data(), n);
      rest_.erase(0, n);
      co_return n;
    }
    boost::system::error_code ec;
    std::size_t n = co_await stream_.async_read_some(asio::buffer(buffer.data(), buffer.size()),
                                                     asio::redirect_error(asio::use_awaitable, ec));
    if (ec == asio::error::eof || ec == asio::ssl::error::stream_truncated)
      co_return std::size_t{0};
    if (ec) co_return fail(Errc::gone, "the client has gone");
    co_return n;
  }

  asio::awaitable<Result<void>> write(std::span<const char> data) override {
    boost::system::error_code ec;
    co_await asio::async_write(stream_, asio::buffer(data.data(), data.size()),
                               asio::redirect_error(asio::use_awaitable, ec));
    if (ec) co_return fail(Errc::gone, "the client has gone");
    co_return Result<void>();
  }

  void shut_down_write() noexcept override {
    boost::system::error_code ignored;
    beast::get_lowest_layer(stream_).socket().shutdown(asio::ip::tcp::socket::shutdown_send,
                                                       ignored);
  }

  void close() noexcept override {
    boost::system::error_code ignored;
    beast::get_lowest_layer(stream_).socket().close(ignored);
  }

 private:
  Stream stream_;
  std::string rest_;
};

}  // namespace

std::unique_ptr<ByteStream> make_byte_stream(PlainStream stream, std::string already_read) {
  return std::make_unique<TakenStream<PlainStream>>(std::move(stream), std::move(already_read));
}

std::unique_ptr<ByteStream> make_byte_stream(TlsStream stream, std::string already_read) {
  return std::make_unique<TakenStream<TlsStream>>(std::move(stream), std::move(already_read));
}

}  // namespace asr
