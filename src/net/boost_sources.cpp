// Boost.JSON and Boost.URL are compiled here, once: they need no libraries of their own then.
#include <boost/json/src.hpp>
#include <boost/url/src.hpp>
