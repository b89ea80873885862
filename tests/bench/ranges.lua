-- Copyright (c) 2026 kubenode.provision authors
-- SPDX-License-Identifier: GPL-3.0-or-later
-- wrk: ranges of 4 KiB at random places, as a BMC reads a virtual disc; thread N reads web-N.iso.
-- From the environment: SIZE, and VARIED and IMAGES for heads that differ in more than the digits of the range.
local blocks = math.floor(tonumber(os.getenv("SIZE")) / 4096)
local images = tonumber(os.getenv("IMAGES"))
local varied = os.getenv("VARIED") == "1"
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

local agents = { "curl/8.5.0", "Redfish/1.14 (virtual media)", "Mozilla/5.0", "Wget/1.21.3" }

-- Host, Range and two to four other fields in any order, another image and another name of the server each time
local function head(first)
  local fields = {
    "Host: 127.0.0." .. math.random(1, 254) .. ":8084",
    string.format("Range: bytes=%d-%d", first, first + 4095),
    "User-Agent: " .. agents[math.random(#agents)],
    "X-Request-Id: " .. math.random(0, 999999999),
  }
  if math.random(2) == 1 then fields[#fields + 1] = "Accept: */*" end
  if math.random(2) == 1 then fields[#fields + 1] = "Connection: keep-alive" end
  for place = #fields, 2, -1 do
    local other = math.random(place)
    fields[place], fields[other] = fields[other], fields[place]
  end
  local path = "/web-" .. math.random(0, images - 1) .. ".iso"
  return "GET " .. path .. " HTTP/1.1\r\n" .. table.concat(fields, "\r\n") .. "\r\n\r\n"
end

function request()
  local first = math.random(0, blocks - 1) * 4096
  if varied then return head(first) end
  return string.format(form, first, first + 4095)
end
