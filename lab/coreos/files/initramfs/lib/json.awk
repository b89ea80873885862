# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
# awk -f json.awk FILE: every string, number, true, false and null of a JSON object as a shell variable that is called by
# its path: leaf_systemd__units__0__name='…'. Keys that could be taken for others are left out: those with a character
# that is neither letter nor digit nor _, with _ at an end or with __.

BEGIN { quote = "'" }

{ text = text $0 "\n" }

END {
    pieces = split(text, piece, "\"")
    if (piece[1] !~ /^[ \t\r\n]*\{[ \t\r\n]*\}?[ \t\r\n]*$/) exit 1
    depth = 0
    place = 1
    while (place <= pieces) {
        outside(piece[place++])
        if (place > pieces) break
        string = piece[place++]
        while (open_ended(string) && place <= pieces) string = string "\"" piece[place++]
        if (depth == 0 || place > pieces) exit 1
        if (kind[depth] == "{" && !after_colon) key[depth] = unescaped(string)
        else leaf(unescaped(string))
    }
    if (depth != 0 || wrong) exit 1
}

# A string goes on when an odd number of backslashes stands before the quote.
function open_ended(string,    count) {
    count = 0
    while (count < length(string) && substr(string, length(string) - count, 1) == "\\") count++
    return count % 2
}

# What stands between strings: brackets, commas, colons, numbers and literals.
function outside(part,    at, character, word) {
    word = ""
    for (at = 1; at <= length(part); at++) {
        character = substr(part, at, 1)
        if (character ~ /[-+.0-9A-Za-z]/) {
            word = word character
            continue
        }
        if (word != "") leaf(word)
        word = ""
        if (character == "{" || character == "[") {
            kind[++depth] = character
            key[depth] = 0
            after_colon = 0
        } else if (character == "}" || character == "]") {
            if (depth == 0) wrong = 1
            depth--
            after_colon = 0
        } else if (character == ",") {
            if (kind[depth] == "[") key[depth]++
            after_colon = 0
        } else if (character == ":") after_colon = 1
    }
}

function leaf(value,    level, path) {
    path = "leaf"
    for (level = 1; level <= depth; level++) {
        if (key[level] !~ /^[A-Za-z0-9]+(_[A-Za-z0-9]+)*$/) return
        path = path (level == 1 ? "_" : "__") key[level]
    }
    gsub(quote, quote "\\" quote quote, value)
    print path "=" quote value quote
}

function unescaped(string,    result, at, letter) {
    result = ""
    while ((at = index(string, "\\")) > 0) {
        letter = substr(string, at + 1, 1)
        result = result substr(string, 1, at - 1)
        string = substr(string, at + 2)
        if (letter == "n") result = result "\n"
        else if (letter == "t") result = result "\t"
        else if (letter == "r") result = result "\r"
        else if (letter == "b") result = result "\b"
        else if (letter == "f") result = result "\f"
        else if (letter == "u") {
            code = hexadecimal(substr(string, 1, 4))
            string = substr(string, 5)
            if (code >= 55296 && code < 56320 && substr(string, 1, 2) == "\\u") {
                code = 65536 + (code - 55296) * 1024 + hexadecimal(substr(string, 3, 4)) - 56320
                string = substr(string, 7)
            }
            result = result utf8(code)
        } else result = result letter
    }
    return result string
}

function hexadecimal(digits,    at, value) {
    value = 0
    for (at = 1; at <= length(digits); at++) value = value * 16 + index("0123456789abcdef", tolower(substr(digits, at, 1))) - 1
    return value
}

function utf8(code) {
    if (code < 128) return sprintf("%c", code)
    if (code < 2048) return sprintf("%c%c", 192 + int(code / 64), 128 + code % 64)
    if (code < 65536) return sprintf("%c%c%c", 224 + int(code / 4096), 128 + int(code / 64) % 64, 128 + code % 64)
    return sprintf("%c%c%c%c", 240 + int(code / 262144), 128 + int(code / 4096) % 64, 128 + int(code / 64) % 64, 128 + code % 64)
}
