"""Names of languages, by the language of the page, from the Unicode CLDR."""

from service.translation import current_language

# BCP 47 tags without a region.
TAGS = (
    "ar bg bn ca cs da de el en es et fa fi fr he hi hr hu id it ja ko lt lv ms nb nl no pl pt ro ru sk sl sr sv "
    "th tr uk ur vi zh zh-Hans zh-Hant"
)

# The names of these, in each language of the pages.
NAMES = {
    "ar": (
        "العربية, البلغارية, البنغالية, الكتالانية, التشيكية, الدانمركية, الألمانية, اليونانية, الإنجليزية, "
        "الإسبانية, الإستونية, الفارسية, الفنلندية, الفرنسية, العبرية, الهندية, الكرواتية, الهنغارية, الإندونيسية, "
        "الإيطالية, اليابانية, الكورية, الليتوانية, اللاتفية, الماليزية, النرويجية بوكمال, الهولندية, النرويجية, "
        "البولندية, البرتغالية, الرومانية, الروسية, السلوفاكية, السلوفانية, الصربية, السويدية, التايلاندية, التركية, "
        "الأوكرانية, الأوردية, الفيتنامية, الصينية, الصينية المبسطة, الصينية التقليدية"
    ),
    "de": (
        "Arabisch, Bulgarisch, Bengalisch, Katalanisch, Tschechisch, Dänisch, Deutsch, Griechisch, Englisch, "
        "Spanisch, Estnisch, Persisch, Finnisch, Französisch, Hebräisch, Hindi, Kroatisch, Ungarisch, Indonesisch, "
        "Italienisch, Japanisch, Koreanisch, Litauisch, Lettisch, Malaiisch, Norwegisch (Bokmål), Niederländisch, "
        "Norwegisch, Polnisch, Portugiesisch, Rumänisch, Russisch, Slowakisch, Slowenisch, Serbisch, Schwedisch, "
        "Thailändisch, Türkisch, Ukrainisch, Urdu, Vietnamesisch, Chinesisch, Chinesisch (vereinfacht), "
        "Chinesisch (traditionell)"
    ),
    "en": (
        "Arabic, Bulgarian, Bangla, Catalan, Czech, Danish, German, Greek, English, Spanish, Estonian, Persian, "
        "Finnish, French, Hebrew, Hindi, Croatian, Hungarian, Indonesian, Italian, Japanese, Korean, Lithuanian, "
        "Latvian, Malay, Norwegian Bokmål, Dutch, Norwegian, Polish, Portuguese, Romanian, Russian, Slovak, "
        "Slovenian, Serbian, Swedish, Thai, Turkish, Ukrainian, Urdu, Vietnamese, Chinese, Simplified Chinese, "
        "Traditional Chinese"
    ),
    "es": (
        "árabe, búlgaro, bengalí, catalán, checo, danés, alemán, griego, inglés, español, estonio, persa, finés, "
        "francés, hebreo, hindi, croata, húngaro, indonesio, italiano, japonés, coreano, lituano, letón, malayo, "
        "noruego bokmal, neerlandés, noruego, polaco, portugués, rumano, ruso, eslovaco, esloveno, serbio, sueco, "
        "tailandés, turco, ucraniano, urdu, vietnamita, chino, chino simplificado, chino tradicional"
    ),
    "fr": (
        "arabe, bulgare, bengali, catalan, tchèque, danois, allemand, grec, anglais, espagnol, estonien, persan, "
        "finnois, français, hébreu, hindi, croate, hongrois, indonésien, italien, japonais, coréen, lituanien, "
        "letton, malais, norvégien bokmål, néerlandais, norvégien, polonais, portugais, roumain, russe, slovaque, "
        "slovène, serbe, suédois, thaï, turc, ukrainien, ourdou, vietnamien, chinois, chinois simplifié, "
        "chinois traditionnel"
    ),
    "ja": (
        "アラビア語, ブルガリア語, ベンガル語, カタロニア語, チェコ語, デンマーク語, ドイツ語, ギリシャ語, 英語, "
        "スペイン語, エストニア語, ペルシア語, フィンランド語, フランス語, ヘブライ語, ヒンディー語, クロアチア語, "
        "ハンガリー語, インドネシア語, イタリア語, 日本語, 韓国語, リトアニア語, ラトビア語, マレー語, "
        "ノルウェー語(ブークモール), オランダ語, ノルウェー語, ポーランド語, ポルトガル語, ルーマニア語, ロシア語, "
        "スロバキア語, スロベニア語, セルビア語, スウェーデン語, タイ語, トルコ語, ウクライナ語, ウルドゥー語, "
        "ベトナム語, 中国語, 簡体中国語, 繁体中国語"
    ),
    "pt-BR": (
        "árabe, búlgaro, bengali, catalão, tcheco, dinamarquês, alemão, grego, inglês, espanhol, estoniano, persa, "
        "finlandês, francês, hebraico, híndi, croata, húngaro, indonésio, italiano, japonês, coreano, lituano, "
        "letão, malaio, bokmål norueguês, holandês, norueguês, polonês, português, romeno, russo, eslovaco, "
        "esloveno, sérvio, sueco, tailandês, turco, ucraniano, urdu, vietnamita, chinês, chinês simplificado, "
        "chinês tradicional"
    ),
    "zh-Hans": (
        "阿拉伯语, 保加利亚语, 孟加拉语, 加泰罗尼亚语, 捷克语, 丹麦语, 德语, 希腊语, 英语, 西班牙语, 爱沙尼亚语, "
        "波斯语, 芬兰语, 法语, 希伯来语, 印地语, 克罗地亚语, 匈牙利语, 印度尼西亚语, 意大利语, 日语, 韩语, 立陶宛语, "
        "拉脱维亚语, 马来语, 书面挪威语, 荷兰语, 挪威语, 波兰语, 葡萄牙语, 罗马尼亚语, 俄语, 斯洛伐克语, "
        "斯洛文尼亚语, 塞尔维亚语, 瑞典语, 泰语, 土耳其语, 乌克兰语, 乌尔都语, 越南语, 中文, 简体中文, 繁体中文"
    ),
}


def language_name(tag: str) -> str:
    """Return the name of a language, without its region, in the language of the page; the tag if it has no name."""
    names = dict(zip(TAGS.split(), NAMES[current_language()].split(", "), strict=True))
    primary, _, rest = tag.partition("-")
    script = rest.partition("-")[0].capitalize()
    return names.get(f"{primary.lower()}-{script}") or names.get(primary.lower(), tag)
