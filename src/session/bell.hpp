#pragma once

#include "net/bell.hpp"
