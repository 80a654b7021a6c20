#include "base/ipv4.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

TEST(Ipv4, AddressesComeBackAsTheyWere) {
  for (const char* text : {"0.0.0.0", "10.233.0.1", "255.255.255.255", "192.0.2.7"})
    EXPECT_EQ(to_string(*parse_ipv4(text)), text);
  EXPECT_EQ(parse_ipv4("1.2.3.4")->value, 0x01020304U);
}

// Forms that one program reads as another address than the next.
TEST(Ipv4, OtherFormsAreRefused) {
  for (const char* text : {"", "1", "1.2.3", "1.2.3.4.5", "256.1.1.1", "010.1.1.1", "0x7f.0.0.1",
                           "1.2.3.4 ", " 1.2.3.4", "1..2.3", "1.2.3.", "-1.2.3.4", "::1"})
    EXPECT_FALSE(parse_ipv4(text)) << text;
}

TEST(Ipv4, NetworksKnowWhatIsInThem) {
  Ipv4Network network = *parse_ipv4_network("10.1.2.0/23");
  EXPECT_EQ(to_string(network), "10.1.2.0/23");
  EXPECT_EQ(network.size(), 512U);
  EXPECT_TRUE(network.contains(*parse_ipv4("10.1.3.255")));
  EXPECT_FALSE(network.contains(*parse_ipv4("10.1.4.0")));
  EXPECT_TRUE(network.contains(*parse_ipv4_network("10.1.3.0/24")));
  EXPECT_FALSE(network.contains(*parse_ipv4_network("10.1.0.0/16")));
  EXPECT_TRUE(parse_ipv4_network("0.0.0.0/0")->contains(*parse_ipv4("8.8.8.8")));
  EXPECT_EQ(parse_ipv4_network("192.0.2.7")->prefix, 32U);
}

TEST(Ipv4, NetworksThatAreNoneAreRefused) {
  for (const char* text : {"10.1.2.3/24", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/08", "/8"})
    EXPECT_FALSE(parse_ipv4_network(text)) << text;
}

}  // namespace
}  // namespace asr
