// Boost.JSON is compiled here, once: it needs no library of its own then.
#include <boost/json/src.hpp>
