-- Copyright (c) 2026 kubenode.provision authors
-- SPDX-License-Identifier: GPL-3.0-or-later
-- wrk: ranges of 4 KiB at random places, as a BMC reads a virtual disc; thread N reads web-N.iso. SIZE: environment.
local blocks = math.floor(tonumber(os.getenv("SIZE")) / 4096)
local form

local started = 0
function setup(thread)
  thread:set("number", started)
  started = started + 1
end

function init()
  math.randomseed(number)
  form = "GET /web-" .. number .. ".iso HTTP/1.1\r\nHost: bench\r\nRange: bytes=%d-%d\r\n\r\n"
end

function request()
  local first = math.random(0, blocks - 1) * 4096
  return string.format(form, first, first + 4095)
end
