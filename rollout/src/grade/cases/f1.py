#!/usr/bin/env python3
"""Writes f1.jsonl: F1 over bags of words, cut by jieba.

    pip install jieba==0.42.1
    python3 f1.py > f1.jsonl
"""
import collections
import json
import logging

import jieba

jieba.setLogLevel(logging.ERROR)

PAIRS = [
    ("急性上呼吸道感染", "急性上呼吸道感染"), ("急性上呼吸道感染", "上呼吸道感染"), ("高血压", "高血压病"),
    ("慢性胃炎", "急性胃炎"), ("多喝水，注意休息", "注意休息，多喝水"), ("建议口服布洛芬退烧", "可以服用布洛芬"),
    ("病毒性感冒", "流感"), ("2型糖尿病", "糖尿病"), ("我来到北京清华大学", "我在清华大学"),
    ("小明硕士毕业于中国科学院计算所", "小明毕业于中国科学院"), ("支气管炎或肺炎", "肺炎"), ("建议去医院做CT检查", "去医院检查CT"),
    ("过敏性鼻炎。", "过敏性鼻炎"), ("胃食管反流病", "胃食管反流"), ("颈椎病引起的头晕", "头晕，颈椎病"),
    ("南京市长江大桥", "南京长江大桥"), ("的的的", "的"), ("今天天气很好", "明天天气不好"), ("偏头痛", "紧张性头痛"),
    ("blue whale", "the blue whale"), ("The quick brown fox", "quick fox"), ("a a b", "a b b"), ("New York", "York, New!"),
    ("1969", "in 1969"), ("3.14", "3.14"), ("don't", "do not"), ("Python 3", "python3"), ("", "x"), ("x", ""),
    ("COVID-19感染", "新冠COVID-19"), ("维生素C 100mg", "维生素C"), ("高血压 hypertension", "hypertension"),
    ("阿莫西林胶囊每日三次", "每日三次阿莫西林"), ("保持情绪稳定", "情绪稳定"),
    ("冠状动脉粥样硬化性心脏病", "冠心病"), ("建议低盐低脂饮食，定期复查血脂", "低盐低脂饮食；复查血脂"), ("请及时就医", "请尽快到医院就诊"),
    ("腰椎间盘突出症", "腰椎间盘突出"), ("缺铁性贫血", "贫血"), ("北京", "北京市"), ("他来到了网易杭研大厦", "网易大厦"),
    ("急性胃肠炎，脱水", "脱水 急性胃肠炎"), ("每天2次，每次1片", "每次1片，每天2次"), ("体温38.5度", "体温38.5℃"), ("A型流感", "甲型流感"),
    ("过敏性鼻炎\n支气管哮喘", "支气管哮喘"), ("繁體中文", "繁体中文"), ("建議多休息", "多休息"), ("ＣＴ检查", "CT检查"), ("，。！", "肺炎"),
    ("the cat sat on the mat", "the the the cat"), ("state-of-the-art", "state of the art"), ("naïve café", "cafe naive"), ("U.S.A.", "usa"),
    ("10,000", "10000"), ("E. coli", "大肠杆菌 E. coli"), ("one two three", "three two one"), ("Ångström", "ångström"),
]


def words(text):
    cut = ("".join(c if c.isalnum() else " " for c in word).split() for word in jieba.cut(text.lower()))
    return collections.Counter(part for parts in cut for part in parts)


for label, answer in PAIRS:
    a, b = words(label), words(answer)
    common = sum((a & b).values())
    f1 = 2 * common / (sum(a.values()) + sum(b.values())) if common else 0.0
    print(json.dumps({"label": label, "answer": answer, "f1": round(f1, 6)}, ensure_ascii=False))
