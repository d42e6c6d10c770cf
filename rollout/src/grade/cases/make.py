#!/usr/bin/env python3
"""Writes cases.jsonl: answers, labels, and what the reference graders say of them.

    pip install math-verify==0.9.0 latex2sympy2_extended==1.11.0 antlr4-python3-runtime==4.13.2
    python3 make.py > cases.jsonl

`math_verify` is the verdict of math_verify.verify(parse(label), parse(answer)), the label in \\boxed{}. `dapo` is that of
DAPO's rule, written down again here from its description: normalise both texts, then compare them as texts. Every answer is
given to both as \\boxed{ANSWER}. Pairs are in both orders where order may matter, so that a rule that leans on one side shows.
"""
import json
import re
import sys

from math_verify import parse, verify

PAIRS = {
    "integer": r"""
42 | 42
42 | 43
-7 | -7
-7 | 7
0 | -0
1,234 | 1234
1,234,567 | 1234567
12,34 | 1234
007 | 7
+5 | 5
10^3 | 1000
2^{10} | 1024
2^{10} | 1023
5! | 120
5! | 121
1{,}000 | 1000
1\,000 | 1000
1\;000 | 1000
""",
    "decimal": r"""
0.5 | .5
0.50 | 0.5
3.14 | 3.15
3.14 | 3.140
1.0 | 1
-0.25 | -.25
0.333 | \frac{1}{3}
0.333333333 | \frac{1}{3}
1.5e3 | 1500
1.5 \times 10^3 | 1500
1.5 \cdot 10^{3} | 1500
6.02\times10^{23} | 6.02\times 10^{23}
3.0\times10^{-2} | 0.03
1234.5 | 1,234.5
""",
    "fraction": r"""
\frac{1}{2} | 0.5
\frac{1}{2} | 1/2
\frac12 | \frac{1}{2}
\dfrac{3}{4} | \tfrac{3}{4}
\frac{2}{4} | \frac{1}{2}
-\frac{1}{2} | \frac{-1}{2}
-\frac{1}{2} | \frac{1}{-2}
\frac{7}{3} | 2\frac{1}{3}
\frac{7}{3} | 2 1/3
\frac{22}{7} | 3.142857
\frac{22}{7} | \pi
\frac{1}{3} | 0.3
7/3 | \frac{7}{3}
\frac{a}{b} | a/b
\frac{14}{3} | 14/3
\cfrac{1}{2} | 0.5
\frac{1}{2}+\frac{1}{3} | \frac{5}{6}
\frac{\frac{1}{2}}{3} | \frac{1}{6}
""",
    "percent": r"""
50\% | 50\%
50\% | 50%
50\% | 50
50\% | 0.5
50 | 0.5
12.5\% | \frac{1}{8}
12.5\% | 12.5
100\% | 1
""",
    "root": r"""
\sqrt{2} | 2^{1/2}
\sqrt{8} | 2\sqrt{2}
\sqrt{12} | 2\sqrt{3}
\sqrt{4} | 2
\frac{1}{\sqrt{2}} | \frac{\sqrt{2}}{2}
\sqrt[3]{27} | 3
\sqrt[3]{-8} | -2
\sqrt2 | \sqrt{2}
\sqrt{2} | 1.41421356237
\sqrt{2} | 1.414
3+2\sqrt{2} | (1+\sqrt{2})^2
\frac{1+\sqrt{5}}{2} | \frac{\sqrt{5}+1}{2}
\frac{1+\sqrt{5}}{2} | \frac{1-\sqrt{5}}{2}
\frac{\sqrt{6}+\sqrt{2}}{4} | \frac{1+\sqrt{3}}{2\sqrt{2}}
5\sqrt{3} | \sqrt{75}
\sqrt{3}\,\text{cm} | \sqrt{3}
""",
    "constant": r"""
2\pi | 6.283185307179586
2\pi | 6.28
\frac{\pi}{2} | \pi/2
\pi r^2 | r^2\pi
e^2 | e^{2}
e^{i\pi} | -1
\ln(2) | \ln 2
\log_2 8 | 3
\log_{10}(100) | 2
\sin(\pi/6) | \frac{1}{2}
\cos 60^\circ | \frac12
\tan\frac{\pi}{4} | 1
3+4i | 4i+3
3+4i | 3-4i
\infty | \infty
-\infty | \infty
\infty | +\infty
|-3| | 3
\lfloor 2.7 \rfloor | 2
\binom{5}{2} | 10
""",
    "symbolic": r"""
x+1 | 1+x
x^2+2x+1 | (x+1)^2
x^2-1 | (x-1)(x+1)
x^2-1 | (x-1)^2
2x+3 | 2y+3
2(x+y) | 2x+2y
\frac{x+1}{2} | \frac{x}{2}+\frac{1}{2}
\frac{x^2-1}{x-1} | x+1
x^{-1} | \frac{1}{x}
\sqrt{x^2} | x
\sqrt{x^2} | |x|
\sin^2 x + \cos^2 x | 1
\sin 2x | 2\sin x\cos x
\ln x^2 | 2\ln x
e^{x+1} | e\cdot e^x
a^2b | b a^2
a^2b | ab^2
ab | ba
n(n+1)/2 | \frac{n(n+1)}{2}
\frac{n(n+1)}{2} | \frac{n^2+n}{2}
2^{n+1} | 2\cdot 2^n
x_1+x_2 | x_2+x_1
x_1 | x_2
\alpha+\beta | \beta+\alpha
(a+b)^3 | a^3+3a^2b+3ab^2+b^3
\frac{1}{x}+\frac{1}{y} | \frac{x+y}{xy}
x^2 + 2x | x(x+2)
-x+1 | 1-x
3x-2 | 3x+2
x^{2} | x^2
f(x)=x^2 | x^2
""",
    "equation": r"""
x=5 | 5
5 | x=5
x = 5 | x=5
x=5 | y=5
x=5 | x=6
y=2x+3 | 2x+3
y=2x+3 | y=3+2x
y=2x+3 | 2x-y+3=0
x+y=1 | 2x+2y=2
x+y=1 | x+y=2
x^2+y^2=1 | 1=x^2+y^2
x=1,2 | 1,2
x=1\text{ or }x=2 | 1,2
x=1 \text{ or } x=2 | x=2\text{ or }x=1
x\ge 3 | x\geq 3
x\ge 3 | 3\le x
x\ge 3 | x>3
1<x<2 | (1,2)
1\le x\le 2 | [1,2]
x>2 | (2,\infty)
x\in[1,2] | [1,2]
""",
    "set": r"""
\{1,2,3\} | \{3,2,1\}
\{1,2,3\} | \{1,2\}
\{1,2,2\} | \{1,2\}
1,2,3 | 3,2,1
1,2,3 | \{1,2,3\}
1, 2, 3 | 1,2,3
1,2 | 1,3
\left\{\frac12,0.25\right\} | \{1/4,1/2\}
\{1\} | 1
\emptyset | \{\}
\varnothing | \emptyset
\{x,y\} | \{y,x\}
\{1,2\}\cup\{3\} | \{1,2,3\}
2 \text{ and } 3 | 2,3
2\text{ and }3 | 3, 2
\pm 2 | \{2,-2\}
\pm 2 | 2,-2
\pm\sqrt{2} | -\sqrt{2},\sqrt{2}
""",
    "tuple": r"""
(1,2) | (1,2)
(1,2) | (2,1)
(1,2) | ( 1 , 2 )
(1,2,3) | (1,2)
(\frac12,3) | (0.5,3)
\left(\frac{1}{2},3\right) | (1/2, 3)
(x,y)=(1,2) | (1,2)
(1,2),(3,4) | (3,4),(1,2)
(1,2),(3,4) | (1,2), (3,4)
\begin{pmatrix}1\\2\end{pmatrix} | \begin{pmatrix}1\\2\end{pmatrix}
\begin{pmatrix}1&2\\3&4\end{pmatrix} | \begin{bmatrix}1&2\\3&4\end{bmatrix}
\begin{pmatrix}1\\2\end{pmatrix} | \begin{pmatrix}2\\1\end{pmatrix}
\begin{pmatrix}0.5\\2\end{pmatrix} | \begin{pmatrix}\frac12\\2\end{pmatrix}
""",
    "interval": r"""
(1,2) | [1,2]
[1,2) | [1,2)
[1,2) | [1,2]
(-\infty,2] | (-\infty,2]
(-\infty,2] | (-\infty, 2)
[0,\infty) | [0,+\infty)
[0,\frac12] | [0,0.5]
(-\infty,-1)\cup(1,\infty) | (1,\infty)\cup(-\infty,-1)
(-\infty,-1)\cup(1,\infty) | (-\infty,-1) \cup (1,+\infty)
[1,3)\cup[3,5] | [1,5]
[-2,1] | \left[-2,1\right]
""",
    "unit": r"""
5\text{ cm} | 5
5 | 5\text{ cm}
5\text{ cm} | 5\text{ m}
5\mathrm{cm} | 5
5\text{ cm}^2 | 5
5\ \text{km/h} | 5
10\text{ dollars} | 10
\$10 | 10
\$10.50 | 10.5
10 dollars | 10
90^\circ | 90
90^{\circ} | 90
90\text{ degrees} | 90^\circ
3\text{ apples} | 3
12 inches | 12
25 m^2 | 25
5\,\text{cm} | 6\,\text{cm}
\text{5 cm} | 5
""",
    "text": r"""
\text{yes} | yes
\text{Yes} | yes
\text{B} | B
\text{(B)} | B
(B) | B
B | C
\textbf{(C)} | C
\text{east} | \text{west}
\text{Evelyn} | Evelyn
Monday | monday
\mathrm{A} | A
""",
    "form": r"""
\left(3\right) | 3
{3} | 3
$3$ | 3
3. | 3
\displaystyle\frac12 | \frac12
2\cdot3 | 6
2\times 3 | 6
2*3 | 6
6\div 2 | 3
\mathbf{5} | 5
5\qquad | 5
x \cdot y | xy
120_{10} | 120
1010_2 | 1010_{2}
1010_2 | 10
0.\overline{3} | \frac{1}{3}
0.\overline{12} | \frac{4}{33}
1:2 | \frac12
3:4 | 3 : 4
10\text{:}30 | 10:30
\approx 3.5 | 3.5
""",
}


def dapo(text):
    """DAPO's normalisation, by its description: the right side of an equation, no spacing, no units, one kind of fraction."""
    text = text.split("=")[-1]
    for a, b in [("an ", ""), ("a ", ""), (".$", "$"), ("\\$", ""), (r"\ ", ""), (" ", ""), ("mbox", "text"),
                 (",\\text{and}", ","), ("\\text{and}", ","), ("\\text{m}", "\\text{}")]:
        text = text.replace(a, b)
    for word in ["square", "ways", "integers", "dollars", "mph", "inches", "hours", "km", "units", "\\ldots", "sue", "points",
                 "feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals", "edges",
                 "students", "childrentickets", "multiples", "\\text{s}", "\\text{.}", "\\text{\ns}", "\\text{}^2",
                 "\\text{}^3", "\\text{\n}", "\\text{}", r"\mathrm{th}", r"^\circ", r"^{\circ}", r"\;", r",\!",
                 "{,}", '"', "\\dots"]:
        text = text.replace(word, "")
    text = re.sub(r"(.*?)(\$)(.*?)(\$)(.*)", "$\\3$", text)
    for command in ["text", "textbf", "overline"]:
        text = re.sub(r"(\\%s\{)(.*?)(\})" % command, "\\2", text)
    text = re.sub(r"(\\boxed\{)(.*)(\})", "\\2", text)
    text = re.sub(r"(frac)([^{])(.)", "frac{\\2}{\\3}", text)
    text = re.sub(r"(sqrt)([^{\[])", "sqrt{\\2}", text)
    text = text.replace("$", "")
    if text.replace(",", "").isdigit():
        text = text.replace(",", "")
    return text.strip()


def main():
    total, seen = 0, set()
    for group, lines in PAIRS.items():
        for line in lines.strip().splitlines():
            label, answer = (part.strip() for part in line.split(" | ", 1))
            both = [(label, answer), (answer, label)] if label != answer else [(label, answer)]
            for label, answer in both:
                if (label, answer) in seen:
                    continue
                seen.add((label, answer))
                gold = parse("\\boxed{%s}" % label, parsing_timeout=None)
                found = parse("\\boxed{%s}" % answer, parsing_timeout=None)
                case = {
                    "group": group,
                    "label": label,
                    "answer": answer,
                    "math_verify": verify(gold, found, timeout_seconds=None),
                    "dapo": dapo(label) == dapo(answer),
                }
                print(json.dumps(case))
                total += 1
    print(total, "cases", file=sys.stderr)


if __name__ == "__main__":
    main()
