r"""Pairs of a gold answer, as the set MATH writes it, and an answer, with the verdict of mathematics.

Each row of a kind is `(gold, right answers, wrong answers)`. A unit or a degree sign may be left out, a percent sign
may not: 10 is not 10 %. A numeral is right only in its base. A list of solutions has no order, a tuple has one.
"""

PAIRS = {
    "numbers": [
        ("1000", [r"1{,}000", r"1\,000", "1,000", r"1,\!000", "1000.", "1e3", r"10^3", r"1.0 \times 10^3"],
         ["1.000", "100", "1,00", r"10{,}000", "1, 000, 1"]),
        ("10,000", ["10000", r"10{,}000"], ["10, 0"]),
        ("-5", ["\u20135", "\u22125", "$-5$", r"-\frac{10}{2}"], ["5", "- -5", "--5"]),
        ("0.5", [".5", r"\frac12", "1/2", r"\tfrac{1}{2}", r"\cfrac{1}{2}"], ["5", "0.50001", "0.05"]),
        (r"\frac{7}{2}", [r"3\frac{1}{2}", "3.5", "7/2", "3 1/2", r"\frac{14}{4}"],
         [r"3\frac{1}{3}", r"\frac{3}{2}", "7"]),
        (r"\frac{1}{3}", [r"0.\overline{3}", r"\dfrac{1}{3}", "1/3"], ["0.333", "3"]),
        ("2", [r"\sqrt{4}", r"\log_2 4", r"\frac{4}{2}", "4/2=2", "1+1"], ["2t", "-2", "2x", "2/0"]),
        ("2t", ["2t", r"2 \cdot t", "t+t"], ["2", "2m", "2h"]),
        (r"\pi", [r"\pi", "\u03c0"], ["3.14", r"2\pi"]),
        ("120", ["5!", r"\binom{10}{3}", r"5 \cdot 24"], [r"\binom{10}{4}", "5"]),
        ("12", [r"\mathbf{12}", r"\text{12}", "(12)", "x = 12", r"\boxed{12}", "$12$", "12,"],
         [r"\text{12 or 13}", "x_12", "6=12", "12 = 13", "n + 12", r"12^2", "1 2", r"1\,2", "1. 2"]),
    ],
    "units": [
        ("4",
         [r"4 \text{ apples}", r"4\text{ cm}", r"4\mbox{ inches}", r"4\,\mathrm{m}", "4 dollars", r"\$4", r"\$4.00"],
         [r"4 \text{ or more}", r"\text{at least } 4", r"4\%", "40 dollars"]),
        (r"15\text{ cm}^2", ["15", r"15 \text{ cm}^2", r"15\,\mathrm{cm}^{2}"],
         ["225", r"15\text{ cm}^3", r"16 \text{ cm}^2"]),
        (r"6 \text{ cm}", ["6", "6 cm"], [r"6\text{ km}", r"6\text{ inches}"]),
        (r"8 \text{ hours}", [r"8 \text{ hr}", "8"], [r"8 \text{ minutes}", "9"]),
        (r"90^\circ", ["90", r"90\degree", "90\u00b0", r"90^{\circ}", r"90 \text{ degrees}"],
         [r"80^\circ", "9", r"90\%"]),
        (r"10\%", [r"10\%", "10%", r"\frac{1}{10}", "0.1", r"10 \text{ percent}"], ["10", r"1\%", r"90\%"]),
        (r"15\text{ cm}", ["15 cm", r"15\text{ centimeters}"],
         [r"15\text{ cm}^2", r"15\text{ square cm}", r"15\text{ centimeters cubed}", r"15\text{ cm}/\text{s}"]),
        (r"24\text{ square units}", [r"24\text{ units}^2", r"24\text{ sq. units}", "24 units squared"],
         [r"24\text{ units}", r"24\text{ cubic units}", r"24\text{ units}^3"]),
        (r"60\text{ miles per hour}", ["60 mph", r"60\text{ mi}/\text{h}", "60 miles an hour", "60 miles each hour"],
         ["60 miles", "60 hours", "60 miles per minute", r"60\text{ miles per hour}^2"]),
        (r"20\text{ cents}", ["20 cent", "20 cents each"], [r"20\text{ centimeters}", "20 dollars"]),
        (r"\$32{,}348", ["32348", r"\$32,348", r"32348 \text{ dollars}"],
         ["32,349", r"32348\text{ cents}", "32348 dollars per pound"]),
    ],
    "relations": [
        (r"x \ge 2",
         [r"x \geq 2", r"x \geqslant 2", "x \u2265 2", "x >= 2", r"2 \le x", r"x\in[2,\infty)", r"[2,\infty)"],
         ["x > 2", r"x \le 2", "2", "x = 2", r"x \ge 3", r"x \ne 2"]),
        (r"x \le 2", [r"x \leqslant 2", "x \u2264 2", r"(-\infty,2]"], ["x < 2", r"x \ge 2", "2"]),
        (r"x \ne 2", [r"x \neq 2", "x \u2260 2"], ["x = 2", "2", "x < 2"]),
        ("x<3", ["3>x", r"x \lt 3"], [r"x \leq 3", "x>3", "3"]),
        (r"-1 < x < 4", [r"4 > x > -1", r"(-1,4)", r"x \in (-1, 4)"], [r"-1 \le x < 4", r"-1 < x", "[-1,4]"]),
        ("12", [], [r"\le 12", r"\geqslant 12", "\u2265 12", "> 12", r"\lt 12", r"\not= 12", r"x \geq 12", r"\neq 12"]),
        ("y=2x+1", [r"y = 1+2x", "2x+1"], ["y=2x", "y=2x-1", r"y \ge 2x+1"]),
        ("x^2+y^2=4", ["x^2+y^2-4=0", "y^2 + x^2 = 4"], ["x^2+y^2=2", r"x^2+y^2 \le 4"]),
    ],
    "bases": [
        ("2516_8", ["2516_{8}", "2516_8.", "$2516_8$"], ["2516_9", "2516_{9}", "2515_8", "2516", "1358"]),
        ("1011_2", ["1011_{2}"], ["1011_{3}", "11_{10}", "1101_2"]),
        ("0xc8bf", ["0xC8BF", "51391", r"51390 + 1", r"\text{0xc8bf}", "0b1100100010111111"],
         ["0xc8be", "0", "0xabc", "-0xc8bf"]),
        ("-0xa", ["-10", "-0o12"], ["0xa", "0", "-0b12"]),
        ("1A_{16}", ["1A_{16}", r"1\text{A}_{16}"], ["1A_{15}", "1B_{16}"]),
    ],
    "several": [
        ("12", [], [r"12 \text{ or 13}", r"12 \mathrm{ or 13}", r"12 \text{ or } 13", "12, 13", "12 and 13", "12 or 13",
                    r"12 \lor 13", "12; 13", r"11 \to 12", r"11 \implies 12", r"\{12, 13\}", r"12 \text{ (not 13)}",
                    r"12 \pm 1", "12/13",
                    "12} or 13", r"13} \boxed{12", r"\text{either 12 or 13}", r"\boxed{12}, \boxed{13}"]),
        ("3, -3",
         ["-3, 3", r"\pm 3", r"3 \text{ and } -3", r"3 \text{ or } -3", r"\{3,-3\}", r"x = 3 \text{ or } x = -3"],
         ["3", "-3", "3, -3, 0", "3, 3", r"\pm 4"]),
        (r"\pm 3", [r"\pm 3", "3, -3", r"\pm3"], ["3", "-3", r"\pm 9"]),
        ("(1,2)", [r"\left(1,2\right)", "(1, 2)", r"\left( \frac{2}{2}, 2\right)"],
         ["(2,1)", r"\{1,2\}", "[1,2]", "1", "(1,2,3)"]),
        (r"\{1,2\}", [r"\{2, 1\}", "1, 2", r"\left\{1,2\right\}"], ["(1,2)", "[1,2]", r"\{1\}", r"\{1,2,3\}"]),
        ("[0,1)", ["[0, 1)", r"\left[0,1\right)", r"0 \le x < 1"], ["[0,1]", "(0,1)", "0, 1", r"0 \le x \le 1"]),
        (r"(-\infty,0)\cup(1,\infty)", [r"(1,\infty) \cup (-\infty, 0)"],
         [r"(-\infty,0)\cap(1,\infty)", r"(-\infty,0]\cup(1,\infty)"]),
        (r"\emptyset", [r"\varnothing"], ["0", r"\{0\}"]),
    ],
    "words": [
        (r"\text{Evelyn}", ["Evelyn", r"\text{Evelyn}", r"\mathrm{Evelyn}", r"\textbf{Evelyn}", r"\text{ evelyn}."],
         ["Bob", "nylevE", "Eve", r"\text{Evelyn or Bob}", r"\text{not Evelyn}"]),
        ("Evelyn", [r"\text{Evelyn}", r"\mbox{Evelyn}"], [r"\text{Bob}"]),
        (r"\text{even}", ["even", r"\operatorname{even}"], ["odd", r"\text{neven}", "0"]),
        (r"\text{Friday}", ["Friday", "friday"], ["Thursday", r"\text{Friday or Monday}"]),
        (r"\text{dog}", ["dog"], ["god", r"\text{god}"]),
        (r"\text{St. John}", ["St. John", r"\text{St John}"], [r"\text{St. Joan}", "John"]),
        (r"\text{(C)}", ["C", "(C)", r"\text{C}", r"\textbf{(C)}", r"\mathrm{(C)}"],
         ["D", r"\text{(B)}", "A, C", r"\text{B or C}"]),
        (r"\text{Yes}", ["yes", "Yes."], ["No", r"\text{Yes and no}"]),
        (r"\text{no solution}", ["no solution", r"\text{No solution}"], ["0", r"\text{one solution}"]),
        (r"\text{parabola}", ["parabola"], ["ellipse", r"\text{parabola, ellipse}"]),
    ],
    "algebra": [
        ("x^2+2x+1", ["(x+1)^2", "1+2x+x^2"], ["x^2+2x", "(x-1)^2", "y^2+2y+1"]),
        (r"\frac{x+1}{2}", [r"\dfrac{1+x}{2}", "(x+1)/2"], ["x+1/2", r"\frac{x-1}{2}"]),
        (r"\frac{\sqrt{3}}{3}", [r"\frac{1}{\sqrt{3}}", r"\frac{\sqrt3}3"], [r"\sqrt{3}", r"\frac{3}{\sqrt{3}}"]),
        ("3+4i", ["4i+3"], ["3-4i", "7"]),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
         [r"\begin{bmatrix}1\\2\end{bmatrix}", r"\begin{pmatrix}1\\ 2\end{pmatrix}"],
         [r"\begin{pmatrix} 2 \\ 1 \end{pmatrix}", r"\begin{pmatrix} 1 & 2 \end{pmatrix}"]),
        (r"\infty", [r"+\infty"], [r"-\infty", "0"]),
        ("f(x)=x+1", ["x+1"], ["x-1"]),
        ("abc", ["abc", "a b c"], ["ab", "a+b+c"]),
        ("x_1", ["x_{1}"], ["x_2", "x"]),
        (r"e^{2}", [r"\mathrm{e}^2", "e^2"], ["e", "2e"]),
        (r"2^{n-1}", ["2^{n - 1}", r"\frac{2^n}{2}"], ["2^{n}-1", "2^n-1"]),
        (r"\frac{1}{12}", [r"\frac 1 {12}", "1/12"], [r"\frac{11}{2}", r"\frac1{1}2"]),
        (r"\sqrt{2x}", [r"\sqrt{2 x}"], [r"\sqrt{2}x", r"\sqrt{2} x"]),
        ("a_{n+1}", ["a_{n + 1}"], ["a_{n}+1", "a_n+1"]),
        (r"A \Rightarrow B", [r"A\Rightarrow B"], [r"B \Rightarrow A"]),
    ],
}  # fmt: skip

LIMITS = [
    (r"x \le -2 \text{ or } x \ge 2", r"(-\infty, -2] \cup [2, \infty)", True, "an `or` is read as a list"),
    (r"x>0 \text{ and } x<1", "0<x<1", True, "so is an `and`"),
    ("zyx", "xyz", True, "three letters in a row are read as a word, so that `god` is not `dog`"),
    ("25th", "25", True, "a unit needs a space or a text command before it"),
    ("25 m", "25", True, "without a text command, a single letter is a variable"),
    (r"1 \text{ million}", "1000000", True, "a word for a power of ten is read as a unit"),
    (r"\text{three}", "3", True, "words for numbers are not read"),
    (r"10 \text{ maybe}", "10", False, "any word after a number that compares nothing is read as a unit"),
    ("0.333333", r"\frac{1}{3}", False, "math-verify compares a decimal with a fraction to six places"),
]  # fmt: skip
"""(answer, gold, right verdict, why this kit's verdict is another one)."""


def pairs():
    """Yield (kind, gold, answer, verdict)."""
    for kind, rows in PAIRS.items():
        for gold, right, wrong in rows:
            yield from ((kind, gold, answer, True) for answer in right)
            yield from ((kind, gold, answer, False) for answer in wrong)
