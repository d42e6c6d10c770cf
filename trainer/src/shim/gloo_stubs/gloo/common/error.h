// Stub: see ../../../group.cpp.
#pragma once
