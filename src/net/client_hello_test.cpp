#include "net/client_hello.hpp"

#include <gtest/gtest.h>

#include "net/egress_testing.hpp"

namespace asr {
namespace {

using State = ClientHelloReader::State;

std::string number(std::size_t value, int width) {
  std::string out;
  for (int i = width - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}
std::string list(const std::string& content, int width) {
  return number(content.size(), width) + content;
}
std::string extension(std::size_t kind, const std::string& body) {
  return number(kind, 2) + list(body, 2);
}
std::string server_name(const std::string& name) {
  return extension(0, list(std::string(1, '\0') + list(name, 2), 2));
}
std::string message(const std::string& extensions) {
  std::string body = number(0x0303, 2) + std::string(32, 'r') + list("", 1) + list("\x13\x01", 2) +
                     list(std::string(1, '\0'), 1) + list(extensions, 2);
  return std::string(1, '\1') + list(body, 3);
}
std::string record(const std::string& content) { return "\x16\x03\x01" + list(content, 2); }

State read(const std::string& bytes, std::string* host = nullptr) {
  ClientHelloReader reader;
  State state = reader.feed(bytes);
  if (host) *host = reader.host();
  return state;
}

TEST(ClientHello, TellsTheHost) {
  std::string host;
  EXPECT_EQ(read(test::client_hello("api.example.com"), &host), State::complete);
  EXPECT_EQ(host, "api.example.com");
  EXPECT_EQ(read(test::client_hello(""), &host), State::complete);
  EXPECT_EQ(host, "");
}

TEST(ClientHello, InPiecesOfAnySize) {
  std::string bytes = test::client_hello("api.example.com");
  for (std::size_t size : {1, 2, 3, 5, 7, 64, 300}) {
    ClientHelloReader reader;
    for (std::size_t at = 0; at < bytes.size(); at += size) {
      EXPECT_EQ(reader.state(), State::more);
      reader.feed(std::string_view(bytes).substr(at, size));
    }
    EXPECT_EQ(reader.state(), State::complete) << size;
    EXPECT_EQ(reader.host(), "api.example.com");
  }
}

TEST(ClientHello, InRecordsCutAnywhere) {
  std::string whole = message(server_name("a.example"));
  for (std::size_t size : {1, 2, 3, 4, 5, 40}) {
    std::string bytes;
    for (std::size_t at = 0; at < whole.size(); at += size) bytes += record(whole.substr(at, size));
    std::string host;
    EXPECT_EQ(read(bytes, &host), State::complete) << size;
    EXPECT_EQ(host, "a.example");
  }
}

TEST(ClientHello, WhatIsNoTls) {
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n"), std::string("SSH-2.0-x"),
                                   std::string("\x80\x2e\x01"), std::string(1, '\0')})
    EXPECT_EQ(read(bytes), State::not_tls);
}

TEST(ClientHello, WhatNobodyShouldUnderstand) {
  std::string twice = server_name("a.example") + server_name("b.example");
  std::string two_names = extension(0, list(std::string(1, '\0') + list("a.example", 2) +
                                                std::string(1, '\0') + list("b.example", 2),
                                            2));
  std::string trailing = extension(0, list(std::string(1, '\0') + list("a.example", 2), 2) + "x");
  std::string other_kind = extension(0, list(std::string(1, '\1') + list("a.example", 2), 2));
  for (const std::string& wrong :
       {twice, two_names, trailing, other_kind, server_name(""), extension(0, ""),
        std::string("\0\0\0", 3), std::string("\0\0\0\5x", 5)})
    EXPECT_EQ(read(record(message(wrong))), State::malformed);
  std::string good = message(server_name("a.example"));
  EXPECT_EQ(read(std::string("\x16\x02\x01") + list(good, 2)), State::malformed) << "version";
  EXPECT_EQ(read(record("")), State::malformed) << "an empty record";
  EXPECT_EQ(read("\x16\x03\x01\x40\x01"), State::malformed) << "a record too long";
  EXPECT_EQ(read(record("\2" + good.substr(1))), State::malformed) << "another message";
  EXPECT_EQ(read(record(good.substr(0, 20)) + "\x17\x03\x03"), State::malformed) << "data between";
  EXPECT_EQ(read(record(std::string("\1\xff\xff\xff", 4))), State::malformed) << "16 MiB announced";
}

TEST(ClientHello, IsBounded) {
  ClientHelloReader reader;
  std::string start = std::string("\1\x00\x7f\x00", 4);
  reader.feed(record(start));
  std::size_t fed = 0;
  std::string crumb = record("x");
  while (reader.state() == State::more && fed < 10 * ClientHelloReader::kMostBytes) {
    reader.feed(crumb);
    fed += crumb.size();
  }
  EXPECT_EQ(reader.state(), State::malformed);
  EXPECT_LE(fed, ClientHelloReader::kMostBytes);
}

TEST(ClientHello, KnowsAnEncryptedOne) {
  ClientHelloReader reader;
  reader.feed(record(message(extension(0xfe0d, "sealed"))));
  EXPECT_EQ(reader.state(), State::complete);
  EXPECT_TRUE(reader.has_encrypted_hello());
  EXPECT_EQ(reader.host(), "");
}

}  // namespace
}  // namespace asr
